"""Online load from Python: numpy, DLPack and the buffer protocol; what torch's tensors do stands in tests/oracle/test_live_load.py."""
import array
import ctypes
import json
import pathlib
import re
import struct

import numpy
import pytest

import crossdock
import models


def stored(folder):
    """Name -> float32 array of a directory's BF16 tensors, read without the library."""
    found = {}
    for path in folder.glob("*.safetensors"):
        data = path.read_bytes()
        size, = struct.unpack("<Q", data[:8])
        for name, entry in json.loads(data[8:8 + size]).items():
            if name == "__metadata__":
                continue
            assert entry["dtype"] == "BF16"
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            found[name] = (numpy.frombuffer(data[begin:end], numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32).reshape(entry["shape"])
    return found


def wide(plan):
    return {name: numpy.full(info.shape, numpy.nan, numpy.float32) for name, info in plan.tensors.items()}


def test_two_tensor_ranks_and_two_stages_hold_what_the_directory_does(demo):
    model = stored(demo / "hf")
    layout = crossdock.Layout(tp=2, pp=2)
    half = {}
    for rank in range(4):
        plan = crossdock.load_plan(demo / "hf", layout, rank)
        assert plan.place == (rank % 2, rank // 2, 0, rank % 2)
        tensors = wide(plan)
        report = plan.read_into(tensors, cast=True, threads=2)
        held = sum(tensor.nbytes // 2 for tensor in tensors.values())
        assert report.tensors == len(tensors) and report.bytes_read <= 1.02 * held
        half[rank] = tensors
    gate, up = (model[f"model.layers.3.mlp.{part}_proj.weight"] for part in ("gate", "up"))   # the second layer of the second stage
    down = model["model.layers.3.mlp.down_proj.weight"]
    width, rows = gate.shape[0] // 2, model["model.embed_tokens.weight"].shape[0]
    for rank in (0, 1):
        part = slice(rank * width, (rank + 1) * width)
        assert numpy.array_equal(half[2 + rank]["decoder.layers.1.mlp.linear_fc1.weight"], numpy.concatenate([gate[part], up[part]]))
        assert numpy.array_equal(half[2 + rank]["decoder.layers.1.mlp.linear_fc2.weight"], down[:, part])
    embedding = numpy.concatenate([half[0]["embedding.word_embeddings.weight"], half[1]["embedding.word_embeddings.weight"]])
    assert numpy.array_equal(embedding[:rows], model["model.embed_tokens.weight"]) and not embedding[rows:].any()
    assert not set(half[0]) & {"output_layer.weight"} and "output_layer.weight" in half[2]


def test_memory_that_is_made_for_the_export_is_kept():
    import gc
    import weakref

    from crossdock._memory import address_of

    freed = []

    class Fresh:
        def __dlpack__(self, **more):
            array = numpy.arange(6, dtype=numpy.float32)
            weakref.finalize(array, freed.append, True)
            return array.__dlpack__()

        def __dlpack_device__(self):
            return 1, 0

    for writable in (False, True):
        (_, address, size, dtype, shape), owner = address_of("x", Fresh(), writable)
        gc.collect()
        assert freed == [] and (size, dtype, shape) == (24, "F32", (6,))
        assert list((ctypes.c_float * 6).from_address(address)) == [0, 1, 2, 3, 4, 5]
        del owner
        gc.collect()
        assert freed == [True]
        freed.clear()
    held = bytearray(8)
    _, owner = address_of("x", held, True)
    with pytest.raises(BufferError):
        held.append(1)   # it would move
    del owner
    held.append(1)


@pytest.mark.parametrize("layout", [{"tp": 4, "pp": 2}, {"tp": 8}], ids=str)
def test_the_system_reads_what_the_rank_holds_and_no_more(tmp_path, layout):
    """As the kernel counts it: columns of row-parallel matrices, cut between ranks, too."""
    models.write_llama(tmp_path / "hf", layers=4)
    for rank in (0, 5):
        plan = crossdock.load_plan(tmp_path / "hf", crossdock.Layout(**layout), rank)
        tensors = {name: (numpy.zeros(info.shape, numpy.uint16), info.dtype) for name, info in plan.tensors.items()}
        held = sum(array.nbytes for array, _ in tensors.values())
        before = bytes_read()
        report = plan.read_into(tensors, threads=2)
        assert 0.98 * held <= bytes_read() - before <= 1.02 * held, (bytes_read() - before, held, report)


def bytes_read():
    """By this process so far, with `read` and its kind."""
    return int(pathlib.Path("/proc/self/io").read_text().split()[1])


def test_virtual_stages_name_their_chunk(demo):
    plan = crossdock.load_plan(demo / "hf", crossdock.Layout(pp=2, vpp=2), 1)
    assert {name.split(".")[0] for name in plan.tensors} == {"model0", "model1"}
    assert "model1.output_layer.weight" in plan.tensors


class OnlyDLPack:
    def __init__(self, held):
        self.held = held

    def __dlpack__(self, **how):
        return self.held.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.held.__dlpack_device__()


def test_memory_of_every_kind(demo):
    plan = crossdock.load_plan(demo / "hf")
    name = "decoder.final_layernorm.weight"
    expected = stored(demo / "hf")["model.norm.weight"]
    shape = plan.tensors[name].shape
    assert plan.tensors[name].dtype == "BF16"

    def read(tensor, **how):
        return plan.read_into({name: tensor}, strict=False, **how)

    numbers = array.array("f", [0.0] * shape[0])
    read(numbers, cast=True)
    assert numpy.array_equal(numpy.array(numbers), expected)
    other = numpy.zeros(shape, numpy.float32)
    read(OnlyDLPack(other), cast=True)
    assert numpy.array_equal(other, expected)
    view = numpy.zeros(shape, numpy.float32)
    read(memoryview(view), cast=True)
    assert numpy.array_equal(view, expected)
    half = numpy.zeros(shape, numpy.float16)
    read(half, cast=True)
    assert numpy.array_equal(half, expected.astype(numpy.float16))
    bits = numpy.zeros(shape, numpy.uint16)
    read((bits, "BF16"))
    assert numpy.array_equal((bits.astype(numpy.uint32) << 16).view(numpy.float32), expected)
    for tensor, words in (
        (numpy.zeros(shape, numpy.float32), "F32 where BF16 is expected"),
        (numpy.zeros(shape, numpy.uint16), "U16 where BF16 is expected"),
        ((bits, "F32"), "another size"),
        (numpy.zeros(shape + (2,), numpy.float32)[:, 0], "without gaps"),
        (numpy.zeros(shape, ">f4"), "other byte order"),
        (numpy.frombuffer(bytes(4 * shape[0]), numpy.float32), "read-only"),
        (memoryview(bytes(shape[0])), "read-only"),
        ("text", "no tensor: str"),
        (7, "no tensor: int"),
    ):
        with pytest.raises((crossdock.UsageError, crossdock.UnsupportedError), match=re.escape(words)):
            read(tensor)


def test_arrays_that_cannot_change_are_refused_by_name(demo):
    array_type = type("Array", (), {"__module__": "jaxlib._jax", "__dlpack__": None})
    plan = crossdock.load_plan(demo / "hf")
    with pytest.raises(crossdock.UsageError, match="JAX arrays cannot be written into"):
        plan.read_into({"decoder.final_layernorm.weight": array_type()}, strict=False)


def test_all_disagreements_are_told_together_and_nothing_is_touched(demo):
    plan = crossdock.load_plan(demo / "hf")
    tensors = wide(plan)
    del tensors["output_layer.weight"]
    tensors["output_layer.bias"] = numpy.zeros(3, numpy.float32)
    tensors["decoder.final_layernorm.weight"] = numpy.zeros(3, numpy.float32)
    with pytest.raises(crossdock.UsageError, match="missing: `output_layer.weight`") as caught:
        plan.read_into(tensors, cast=True)
    for words in ("not of this rank: `output_layer.bias`", "`decoder.final_layernorm.weight` [3] where"):
        assert words in str(caught.value)
    assert all(numpy.isnan(tensor).all() for tensor in tensors.values() if tensor.shape != (3,))


def test_an_exception_in_progress_stops_the_load(demo):
    plan = crossdock.load_plan(demo / "hf")

    def progress(phase, done, total, current):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        for _ in range(200):   # a load of this size may end before anything is told
            plan.read_into(wide(plan), cast=True, progress=progress)


def test_options_are_checked(demo):
    for options, words in (
        ({"dtype": "bf15"}, "`bf16`, `fp16` or `fp32`"), ({"mtp": "template"}, "kept or dropped"), ({"family": "qwen33"}, "qwen3"),
        ({"rank": 1}, "rank 1"), ({"rank": crossdock.RankPlace(stage=1)}, "no such stage rank"),
        ({"layout": crossdock.Layout(tp=3)}, "tp"), ({"step": 7}, "step"),
    ):  # fmt: skip
        with pytest.raises(crossdock.Error, match=re.escape(words)):
            crossdock.load_plan(demo / "hf", **options)
    plan = crossdock.load_plan(demo / "hf", dtype="fp32")
    assert {info.dtype for info in plan.tensors.values()} == {"F32"}
    tensors = wide(plan)
    plan.read_into(tensors, memory="64MiB")
    assert not any(numpy.isnan(tensor).any() for tensor in tensors.values())
    with pytest.raises(crossdock.UsageError, match="no number of bytes"):
        plan.read_into(tensors, memory="much")


def test_what_a_run_begins_with(demo, tmp_path):
    assert crossdock.detect_resume().kind == "none"
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(crossdock.IncompleteError, match="nothing was found"):
            crossdock.detect_resume(path)
    weights = crossdock.detect_resume(demo / "hf")
    assert (weights.kind, weights.iteration, weights.load_optim, weights.finetune) == ("hf", 0, False, False)
    crossdock.convert(demo / "full-state", tmp_path / "run", to="megatron", iteration=20)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "run" / name).write_bytes((demo / "hf" / name).read_bytes())
    own = crossdock.detect_resume(tmp_path / "run", no_load_rng=True)   # the tracker wins over the weights beside it
    assert (own.kind, own.iteration, own.load_optim, own.load_rng, own.path) == ("megatron", 20, True, False, str(tmp_path / "run" / "iter_0000020"))
    pretrained = crossdock.detect_resume(tmp_path / "absent", pretrained_checkpoint=tmp_path / "run")
    assert (pretrained.kind, pretrained.iteration, pretrained.load_optim, pretrained.load_rng, pretrained.finetune) == ("megatron", 0, False, False, True)
    with pytest.raises(crossdock.IncompleteError):
        crossdock.detect_resume(tmp_path / "run", ckpt_step=30)
    plan = crossdock.load_plan(tmp_path / "run", crossdock.Layout(tp=2), 1)   # a Megatron checkpoint is read by the same call
    tensors = wide(plan)
    plan.read_into(tensors, cast=True)
    again = wide(plan)
    crossdock.load_plan(demo / "hf", crossdock.Layout(tp=2), 1).read_into(again, cast=True)
    assert all(numpy.array_equal(tensors[name], again[name]) for name in tensors)
