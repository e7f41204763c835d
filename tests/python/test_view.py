"""`crossdock.open` shows every format by Hugging Face names, and reads what is asked for."""
import concurrent.futures
import gc
import json
import random
import struct

import numpy
import pytest

import crossdock

FORMATS = {
    "hf": {}, "full-state": {}, "megatron": dict(tp=2, pp=2), "megatron-legacy": dict(tp=2, pp=2, vpp=2), "dcp": dict(no_optim=True), "maxtext": {},
}  # fmt: skip


def stored(folder):
    """Name -> (dtype, shape, bytes) of a Hugging Face directory, read with the standard library."""
    out = {}
    for file in sorted(folder.glob("*.safetensors")):
        data = file.read_bytes()
        size, = struct.unpack("<Q", data[:8])
        for name, entry in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                out[name] = entry["dtype"], tuple(entry["shape"]), data[8 + size + start:8 + size + end]
    return out


@pytest.fixture(scope="session")
def forms(demo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("forms")
    for name, options in FORMATS.items():
        crossdock.convert(demo / "full-state", folder / name, to=name, **options)
    return folder


def opened(forms, name, **options):
    if name == "maxtext":
        options["hf_template"] = forms / "hf"
    return crossdock.open(forms / name, **options)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_the_same_tensors(name, forms):
    expected = stored(forms / "hf")
    with opened(forms, name) as view:
        assert view.keys() == sorted(expected) and len(view) == len(expected)
        assert sorted(view.offset_keys()) == view.keys() and view.metadata()["format"] == "pt"
        for key in view:
            tensor = view.get_tensor(key)
            dtype, shape, data = expected[key]
            assert (tensor.dtype, tensor.shape, bytes(memoryview(tensor))) == (dtype, shape, data), key
            assert view.get_slice(key).get_shape() == list(shape) and view.get_slice(key).get_dtype() == dtype


INDICES = [
    3, -1, slice(2, 9), slice(None), slice(-5, None), slice(9, 2), (Ellipsis,), (slice(1, 3), slice(4, 20)), (Ellipsis, slice(0, 7)),
    (5, Ellipsis), (-2, -3), (numpy.int64(4), slice(None)), (), (slice(0, 0), 3), (slice(5, 10**9),),
]  # fmt: skip


@pytest.mark.parametrize("name", ["hf", "megatron", "megatron-legacy", "maxtext"])
def test_slices_are_those_of_numpy(name, forms):
    rng = random.Random(5)
    with opened(forms, name, framework="np", dtype="fp32") as view:
        for key in ("model.embed_tokens.weight", "model.layers.1.self_attn.k_proj.weight", "model.layers.2.mlp.up_proj.weight"):
            whole, part = view.get_tensor(key), view.get_slice(key)
            assert whole.dtype == numpy.float32
            more = [(slice(*sorted(rng.sample(range(whole.shape[0]), 2))), slice(*sorted(rng.sample(range(whole.shape[1]), 2)))) for _ in range(5)]
            for index in INDICES + more:
                found = part[index]
                assert found.shape == whole[index].shape and (found == whole[index]).all(), (key, index)
            for index in (slice(0, 8, 2), slice(8, 0, -1), (0, 0, 0), (Ellipsis, Ellipsis), [1, 2], 1.5, None):
                with pytest.raises(crossdock.UsageError):
                    part[index]
            with pytest.raises(IndexError):
                part[whole.shape[0]]


def test_only_what_is_asked_for_is_read(forms):
    with crossdock.open(forms / "megatron") as view:
        assert view.bytes_read == 0
        rows = view.get_slice("model.layers.3.mlp.gate_proj.weight")
        part = rows[2:5]
        assert part.shape == (3, rows.get_shape()[1]) and view.bytes_read == part.nbytes
        view.get_tensor("model.layers.0.self_attn.q_proj.weight")
        assert view.bytes_read == part.nbytes + 2 * rows.get_shape()[1] * view.get_slice("model.layers.0.self_attn.q_proj.weight").get_shape()[0]


def test_options_are_those_of_a_conversion(forms, tmp_path):
    crossdock.convert(forms / "megatron", tmp_path / "f16", to="hf", dtype="fp16", params_from="master")
    expected = stored(tmp_path / "f16")
    with crossdock.open(forms / "megatron", dtype="fp16", params_from="master") as view:
        for key in view:
            assert bytes(memoryview(view.get_tensor(key))) == expected[key][2]
    for options, says in [
        (dict(tp=2), "`open` takes no `tp`"), (dict(dtyp="bf16"), "did you mean `dtype`?"), (dict(force=True), "takes no `force`"),
        (dict(framework="tensorflow"), "framework"), (dict(device="cuda"), "torch"),
    ]:
        with pytest.raises(crossdock.UsageError, match=says):
            crossdock.open(forms / "megatron", **options)
    with pytest.raises(crossdock.IncompleteError):
        crossdock.open(tmp_path / "nothing")


def test_fp8_is_shown_as_it_is_stored_and_dequantized_when_asked(forms, tmp_path):
    crossdock.quantize(forms / "hf", tmp_path / "fp8")
    expected = stored(tmp_path / "fp8")
    with crossdock.open(tmp_path / "fp8") as view:
        assert view.keys() == sorted(expected)
        assert all(bytes(memoryview(view.get_tensor(key))) == expected[key][2] for key in view)
    crossdock.convert(tmp_path / "fp8", tmp_path / "back", to="hf", dtype="bf16")
    expected = stored(tmp_path / "back")
    with crossdock.open(tmp_path / "fp8", dtype="bf16") as view:
        assert all(bytes(memoryview(view.get_tensor(key))) == expected[key][2] for key in view)


def test_tensors_are_handed_over_without_a_copy(forms):
    with crossdock.open(forms / "hf", dtype="fp32") as view:
        tensor = view.get_tensor("model.norm.weight")
        array, same = numpy.from_dlpack(tensor), numpy.asarray(memoryview(tensor))
        assert array.ctypes.data == same.ctypes.data and array.ctypes.data % 64 == 0
        assert tensor.__dlpack_device__() == (1, 0) and "F32" in repr(tensor)
        expected = bytes(memoryview(tensor))
        del tensor, same
        gc.collect()
        assert array.tobytes() == expected   # the array alone keeps the memory
    with crossdock.open(forms / "hf") as view:
        bits = memoryview(view.get_tensor("model.norm.weight"))
        assert bits.format == "H" and bits.shape == (view.get_slice("model.norm.weight").get_shape()[0],)
        view_of_bits = view.get_tensor("model.norm.weight")
    with crossdock.open(forms / "hf", framework="np") as view:
        array = view.get_tensor("model.norm.weight")
        assert array.view(numpy.uint16).tobytes() == bytes(memoryview(view_of_bits))


def test_a_closed_view_and_unknown_names_say_so(forms):
    view = crossdock.open(forms / "hf")
    with pytest.raises(crossdock.UsageError, match="did you mean `model.norm.weight`?"):
        view.get_tensor("model.nrm.weight")
    with view:
        pass
    with pytest.raises(crossdock.UsageError, match="closed"):
        view.get_tensor("model.norm.weight")


def test_threads_read_at_once(forms):
    expected = stored(forms / "hf")
    with crossdock.open(forms / "megatron") as view:
        def read(seed):
            keys = view.keys()
            random.Random(seed).shuffle(keys)
            return len(keys), [key for key in keys if bytes(memoryview(view.get_tensor(key))) != expected[key][2]]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            found = [reading.result() for reading in [pool.submit(read, seed) for seed in range(4)]]   # what a thread raises is raised here
    assert found == [(len(expected), [])] * 4
