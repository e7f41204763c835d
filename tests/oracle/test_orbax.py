"""The real Orbax (v0 and v1) and TensorStore on both sides of our Orbax, OCDBT and zarr: they read what we wrote, we read what they wrote, byte for byte.

Runs in the environment of `scripts/setup_test_env.sh jax`; in another it is skipped. `orbax_tool` (orbax_tool.cc) is the reader and the writer with
the engine between them.
"""
import hashlib
import json
import os
import pathlib
import shutil
import struct
import subprocess

import pytest

import tool

tool.require()
pytest.importorskip("orbax.checkpoint", reason="needs the environment of `scripts/setup_test_env.sh jax`")

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import orbax.checkpoint as ocp
import tensorstore as ts
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from orbax.checkpoint import v1

TOOL = pathlib.Path(tool.BINARY).parent / "tests" / "oracle" / "orbax_tool"
HANDLER = "orbax.checkpoint._src.handlers.pytree_checkpoint_handler.PyTreeCheckpointHandler"


def run(*words, expect=0):
    done = subprocess.run([TOOL, *map(str, words)], capture_output=True, text=True, timeout=60)
    assert done.returncode == expect, f"exit {done.returncode}: {words}\n{done.stderr[-2000:]}"
    return json.loads(done.stdout) if expect == 0 else done.stderr


def dump(path, tmp_path, *words):
    """What our reader and engine make of a checkpoint: name -> (shape, bytes), and what the catalog says."""
    target = tmp_path / "dump.safetensors"
    about = run("dump", path, target, *words)
    data = target.read_bytes()
    target.unlink()
    length = struct.unpack("<Q", data[:8])[0]
    rows = json.loads(data[8:8 + length])
    rows.pop("__metadata__", None)
    begin = 8 + length
    return {name: (row["shape"], data[begin + row["data_offsets"][0]:begin + row["data_offsets"][1]]) for name, row in rows.items()}, about


def plain(leaf):
    """A leaf as numpy, int4 widened, typed keys as their data."""
    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    return array.astype(np.int8) if array.dtype == ml_dtypes.int4 else array


def flat(value, path=()):
    if isinstance(value, dict):
        return {name: leaf for key, item in value.items() for name, leaf in flat(item, path + (str(key),)).items()}
    if isinstance(value, (list, tuple)):
        fields = getattr(value, "_fields", range(len(value)))
        return {name: leaf for key, item in zip(fields, value) for name, leaf in flat(item, path + (str(key),)).items()}
    return {} if value is None or isinstance(value, str) else {".".join(path): plain(value)}


def bytes_of(value):
    return {name: (list(leaf.shape), leaf.tobytes()) for name, leaf in flat(value).items()}


def assert_same(found, wanted):
    assert wanted, "nothing to compare"
    assert found.keys() == wanted.keys(), (sorted(found.keys() - wanted.keys()), sorted(wanted.keys() - found.keys()))
    different = [name for name in wanted if found[name] != wanted[name]]
    assert not different, different


def seeded(name, shape, dtype):
    generator = np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))
    if np.dtype(dtype) in (np.dtype(bool), np.dtype(np.uint8)):
        return generator.integers(0, 2, shape).astype(dtype)
    if np.dtype(dtype) == ml_dtypes.int4:
        return generator.integers(-8, 8, shape).astype(dtype)
    if np.issubdtype(dtype, np.integer):
        return generator.integers(0, 1000, shape).astype(dtype)
    return generator.standard_normal(shape).astype(np.float32).astype(dtype)


def state(int4=True):
    """A training state: MaxText's nesting, optax' own tuples, every type, a chunk above the inline limit, names that sort oddly."""
    params = {"params": {"decoder": {"layers": {"kernel": seeded("kernel", (16, 40), jnp.bfloat16), "scale": seeded("scale", (16,), np.float32)},
                                     "layers_norm": seeded("norm", (6,), np.float32)},
                         "half": seeded("half", (4, 4), np.float16), "fp8": seeded("fp8", (8, 4), ml_dtypes.float8_e4m3fn),
                         "flags": seeded("flags", (8, 3), bool), "bytes": seeded("bytes", (11,), np.uint8)}}
    if int4:
        params["params"]["i4"] = seeded("i4", (8, 6), ml_dtypes.int4)
    weights = {"params": {"kernel": seeded("w", (16, 40), np.float32)}}
    optimizer = jax.tree.map(lambda x: np.asarray(x), optax.adamw(lambda step: 1e-3).init(weights))
    optimizer = jax.tree.map(lambda x: seeded(str(x.shape), x.shape, x.dtype), optimizer)
    return {"params": params, "opt_state": optimizer, "zeros": np.zeros((64, 8), np.float32), "step": np.int32(7)}


def on_devices(value, count):
    """Axes divided over two mesh axes where they divide, else replicated; one device alone for count 1."""
    devices = np.array(jax.devices()[:count]).reshape((2, count // 2) if count > 1 else (1, 1))
    mesh = Mesh(devices, ("a", "b"))

    def put(x):
        sizes = dict(zip(("a", "b"), devices.shape))
        spec = PartitionSpec(*[axis if size % sizes[axis] == 0 else None for size, axis in zip(x.shape, ("a", "b"))])
        return jax.device_put(x, NamedSharding(mesh, spec))
    return jax.tree.map(put, value)


def save_v0(path, value, zarr3, ocdbt, **more):
    with ocp.CheckpointManager(path, item_names=("items",), item_handlers={"items": ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3)}) as keeper:
        keeper.save(7, args=ocp.args.Composite(items=ocp.args.PyTreeSave(value, **more)), custom_metadata={"scan_layers": True})
        keeper.wait_until_finished()
    return path / "7"


def save_flat(path, value, zarr3, ocdbt):
    ocp.PyTreeCheckpointer(use_ocdbt=ocdbt, use_zarr3=zarr3).save(path, value)
    return path


def save_v1(path, value, zarr3, ocdbt):
    context = v1.Context()
    context.array.saving.use_ocdbt = ocdbt
    context.array.saving.use_zarr3 = zarr3
    with context, v1.training.Checkpointer(path) as keeper:
        keeper.save_checkpointables(7, {"items": value}, custom_metadata={"scan_layers": True})
    return path / "7"


# ---- we read what they wrote ----

@pytest.mark.parametrize("zarr3", [False, True], ids=["zarr2", "zarr3"])
@pytest.mark.parametrize("ocdbt", [False, True], ids=["directories", "ocdbt"])
@pytest.mark.parametrize("save, devices", [(save_v0, 1), (save_v0, 4), (save_v0, 8), (save_flat, 8), (save_v1, 4)])
def test_reads_what_orbax_wrote(tmp_path, save, devices, ocdbt, zarr3):
    value = on_devices(state(), devices)
    path = save(tmp_path / "run", value, zarr3, ocdbt)
    found, about = dump(path, tmp_path, "--memory", 1 << 20)
    assert_same(found, bytes_of(value))
    assert about["orbax"]["ocdbt"] == ocdbt and about["orbax"]["zarr3"] == zarr3
    if save is not save_flat:
        assert about["custom_metadata"] == {"scan_layers": True} and about["step"] == 7
    assert tool.run("inspect", path, "--tensors").count("params.params.decoder.layers.kernel  BF16 [16, 40]") == 1


def test_reads_small_chunks_small_files_and_uncompressed_ones(tmp_path):
    value = on_devices(state(), 4)
    args = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=100), value)
    path = save_v0(tmp_path / "small", value, True, True, save_args=args, ocdbt_target_data_file_size=2000)
    found, about = dump(path, tmp_path, "--memory", 1 << 20)
    assert_same(found, bytes_of(value))
    assert about["encoded_chunks"] > 100
    assert len(list((path / "items" / "ocdbt.process_0" / "d").iterdir())) > 3
    for zarr3 in (True, False):
        handler = ocp.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=zarr3, use_compression=False)
        bare = tmp_path / f"bare{zarr3}"
        ocp.Checkpointer(handler).save(bare, value)
        found, about = dump(bare, tmp_path)
        assert_same(found, bytes_of(value))


def test_a_chunk_beyond_the_memory_goes_through_a_scratch_file(tmp_path):
    value = {"large": seeded("large", (1024, 3001), np.float32), "rows": seeded("rows", (5, 7), np.float32)}
    path = save_flat(tmp_path / "run", value, True, True)
    found, about = dump(path, tmp_path, "--memory", 4 << 20)
    assert_same(found, bytes_of(value))
    assert about["peak_buffer_bytes"] <= 4 << 20 and about["encoded_chunks"] == 2
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".crossdock-decoded")]


def test_reads_leaves_that_are_no_arrays_and_typed_keys(tmp_path):
    value = {"key": jax.random.key(3, impl="unsafe_rbg"), "text": "hello", "number": 3, "real": 2.5, "none": None, "dict": {}, "list": [], "it's": np.ones(2, np.float32)}
    path = save_v0(tmp_path / "run", value, True, True)
    found, about = dump(path, tmp_path)
    assert_same(found, bytes_of(value))
    rows = {tuple(row["path"]): row for row in about["tree"]}
    assert rows["text",]["text"] == "hello" and rows["dict",]["value_type"] == "Dict" and rows["none",]["value_type"] == "None"
    assert rows["key",]["ext_metadata"] == {"random_key_impl": "unsafe_rbg"}
    copy = tmp_path / "copy" / "7"
    run("copy", path, copy)
    again = restore_v0(copy)
    assert again["text"] == "hello" and again["number"] == 3 and again["dict"] == {} and again["list"] == [] and again["none"] is None
    assert jax.random.key_impl(again["key"]) == "unsafe_rbg"
    assert_same(bytes_of(again), bytes_of(value))


# ---- they read what we wrote ----

def restore_v0(step, template=None, args=None):
    with ocp.CheckpointManager(step.parent, item_names=("items",), item_handlers={"items": ocp.PyTreeCheckpointHandler()}) as keeper:
        assert keeper.latest_step() == 7
        assert keeper.metadata(7).custom_metadata in ({"scan_layers": True}, {})
        return keeper.restore(7, args=ocp.args.Composite(items=ocp.args.PyTreeRestore(template, restore_args=args)))["items"]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    value = state(int4=False)
    return save_v0(tmp_path_factory.mktemp("original") / "run", on_devices(value, 4), True, True), value


def restored_lists(value):
    """What a restore without a target makes of optax' tuples."""
    if isinstance(value, dict):
        return {key: restored_lists(item) for key, item in value.items()}
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            return {key: restored_lists(item) for key, item in zip(value._fields, value)} or None
        return [restored_lists(item) for item in value]
    return value


FORMS = {"ocdbt": [], "rows": ["--rows", 3], "numpy": ["--numpy"], "zarr2": ["--zarr2"], "directories": ["--directories", "--rows", 5],
         "directories_zarr2": ["--directories", "--zarr2"], "zstd": ["--zstd", 1, "--rows", 3], "zstd_zarr2": ["--zstd", 3, "--zarr2"],
         "zstd_directories": ["--directories", "--zstd", 19]}


@pytest.mark.parametrize("form", FORMS)
def test_orbax_restores_what_we_wrote(tmp_path, original, form):
    source, value = original
    wanted = bytes_of(value)
    step = tmp_path / "run" / "7"
    run("copy", source, step, *FORMS[form])
    # Without a target, v0 and v1.
    bare = restore_v0(step)
    assert_same(bytes_of(bare), wanted)
    assert jax.tree.structure(jax.tree.map(np.asarray, bare)) == jax.tree.structure(jax.tree.map(np.asarray, restored_lists(value)))
    kinds = {type(leaf) for leaf in jax.tree.leaves(bare)}
    assert (np.ndarray in kinds) == (form == "numpy")
    assert_same(bytes_of(v1.load(step, checkpointable_name="items")), wanted)
    # Into a target on eight devices, as a trainer does (case B83; the source was saved on four).
    target = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), on_devices(value, 8))
    placed = restore_v0(step, target, ocp.checkpoint_utils.construct_restore_args(target))
    assert_same(bytes_of(placed), wanted)
    assert jax.tree.structure(placed) == jax.tree.structure(target)
    assert len(placed["params"]["params"]["decoder"]["layers"]["kernel"].sharding.device_set) == 8
    assert_same(bytes_of(v1.load(step, target, checkpointable_name="items")), wanted)
    # As numpy, as tools do.
    args = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), bare)
    assert_same(bytes_of(ocp.PyTreeCheckpointer().restore(step / "items", restore_args=args)), wanted)
    found, about = dump(step, tmp_path)
    assert_same(found, wanted)


def test_flat_checkpoints_restore(tmp_path, original):
    source, value = original
    run("copy", source, tmp_path / "flat", "--flat")
    assert_same(bytes_of(ocp.PyTreeCheckpointer().restore(tmp_path / "flat")), bytes_of(value))
    run("copy", source, tmp_path / "standard", "--flat", "--handler", "orbax.checkpoint._src.handlers.standard_checkpoint_handler.StandardCheckpointHandler")
    assert_same(bytes_of(ocp.StandardCheckpointer().restore(tmp_path / "standard")), bytes_of(value))


def test_tensorstore_opens_each_array(tmp_path, original):
    source, value = original
    for words, driver in (([], "zarr3"), (["--zarr2"], "zarr"), (["--zstd", 1], "zarr3"), (["--zstd", 22, "--zarr2"], "zarr")):
        step = tmp_path / f"{driver}{len(words)}" / "7"
        run("copy", source, step, "--rows", 3, *words)
        for name, (shape, data) in bytes_of(value).items():
            store = ts.open({"driver": driver, "kvstore": {"driver": "ocdbt", "base": f"file://{step}/items/"}, "path": name + "/"}).result()
            assert list(store.shape) == shape and store.read().result().tobytes() == data, name


def _write_model(folder):
    """A Llama whose embedding has a prime number of rows and takes several chunks, with float32 values that compress."""
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 2, "num_attention_heads": 16,
              "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 2503, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "tie_word_embeddings": True, "hidden_act": "silu", "torch_dtype": "float32"}
    shapes = {"model.embed_tokens.weight": (2503, 1024), "model.norm.weight": (1024,)}
    for layer in range(2):
        for name, shape in {"self_attn.q_proj": (1024, 1024), "self_attn.k_proj": (512, 1024), "self_attn.v_proj": (512, 1024), "self_attn.o_proj": (1024, 1024), "mlp.gate_proj": (2816, 1024),
                            "mlp.up_proj": (2816, 1024), "mlp.down_proj": (1024, 2816), "input_layernorm": (1024,), "post_attention_layernorm": (1024,)}.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    header, parts, at = {}, [], 0
    for name, shape in shapes.items():
        data = seeded(name, shape, jnp.bfloat16).astype(np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    (folder / "config.json").write_text(json.dumps(config))


def test_compressed_maxtext_checkpoints_restore_bit_equal(tmp_path):
    """The dialect's chunk grid, compressed by several threads: Orbax and TensorStore read what they read without compression."""
    _write_model(tmp_path / "hf")
    trees = {}
    for form, words in {"none": [], "zstd": ["--threads", 1], "zstd:3": ["--threads", 4, "--memory", "48MiB"]}.items():
        tool.convert(tmp_path / "hf", tmp_path / form, "--to", "maxtext", "--compression", form, *words)
        items = tmp_path / form / "0" / "items"
        trees[form] = bytes_of(ocp.PyTreeCheckpointer().restore(items))
        chunks = {}
        for name, (shape, data) in trees[form].items():
            store = ts.open({"driver": "zarr3", "kvstore": {"driver": "ocdbt", "base": f"file://{items}/"}, "path": name + "/"}).result()
            assert store.read().result().tobytes() == data, name
            chunks[name] = store.chunk_layout.write_chunk.shape
        assert (chunks["params.params.token_embedder.embedding"] == (2503, 1024)) == (form == "none")
        kernel = chunks["params.params.decoder.layers.mlp.wi_0.kernel"]
        assert kernel == (1024, 2, 2816) if form == "none" else kernel[1] == 1 and kernel[0] * kernel[2] * 4 <= 4 << 20, kernel
    assert_same(trees["zstd"], trees["none"])
    assert_same(trees["zstd:3"], trees["none"])
    sizes = {form: sum(file.stat().st_size for file in (tmp_path / form / "0" / "items" / "d").iterdir()) for form in trees}
    assert sizes["zstd:3"] <= sizes["zstd"] < 0.7 * sizes["none"], sizes  # half of each value is zeros
    again = tmp_path / "again"
    tool.convert(tmp_path / "hf", again, "--to", "maxtext", "--threads", 8)
    for file in sorted((again / "0").rglob("*")):
        if file.is_file():
            assert file.read_bytes() == (tmp_path / "zstd" / file.relative_to(again)).read_bytes(), file


def test_tensorstore_extends_our_database_and_we_read_on(tmp_path, original):
    source, value = original
    step = tmp_path / "run" / "7"
    run("copy", source, step)
    kernel = "params.params.decoder.layers.kernel"
    store = ts.open({"driver": "zarr3", "kvstore": {"driver": "ocdbt", "base": f"file://{step}/items/"}, "path": kernel + "/"}).result()
    changed = seeded("changed", (16, 40), jnp.bfloat16)
    store.write(changed).result()
    found, _ = dump(step, tmp_path)
    assert_same(found, bytes_of(value) | {kernel: ([16, 40], changed.tobytes())})


@pytest.mark.parametrize("keys, node_bytes, tallest", [(5000, 300, 4), (5000, 1 << 20, 0), (1, 100, 0)])
def test_tensorstore_reads_and_extends_trees_of_any_height(tmp_path, keys, node_bytes, tallest):
    assert run("tree", ".", tmp_path / "db", "--rows", keys, "--memory", node_bytes)["height"] >= tallest
    store = ts.KvStore.open({"driver": "ocdbt", "base": f"file://{tmp_path}/db/"}).result()
    listed = sorted(store.list().result())
    assert listed == sorted(f"key.{i % 7}/{i}".encode() for i in range(keys))
    for key in listed[::37]:
        assert store[key] == key
    store[b"key.3/x"] = b"new"
    assert store[b"key.3/x"] == b"new" and len(store.list().result()) == keys + 1


# ---- what is not there ----

def test_unfinished_steps_are_passed_over_as_orbax_does(tmp_path, original):
    source, _ = original
    root = tmp_path / "run"
    run("copy", source, root / "7")
    shutil.copytree(root / "7", root / "9.orbax-checkpoint-tmp")
    with ocp.CheckpointManager(root) as keeper:
        assert keeper.latest_step() == 7
    text = tool.run("inspect", root)
    tool.refused(text, "9.orbax-checkpoint-tmp", "not saved to its end", "step        7")
    tool.refused(tool.run("inspect", root / "9.orbax-checkpoint-tmp", expect=3), "incomplete", "being written")
    (root / "7" / "items" / "manifest.ocdbt").unlink()
    tool.refused(tool.run("inspect", root / "7", expect=3), "not finished", "manifest.ocdbt")


def test_aggregate_files_are_refused_by_name(tmp_path):
    value = {"a": np.arange(4, dtype=np.float32), "b": np.arange(3)}
    item = tmp_path / "old"
    ocp.PyTreeCheckpointer(use_ocdbt=False).save(item, value)
    (item / "_METADATA").unlink()
    (item / "checkpoint").write_bytes(b"\x81\xa1a\x01")
    tool.refused(tool.run("inspect", item, expect=3), "msgpack", "_METADATA")


def test_converting_asks_for_the_meaning_of_the_tensors(tmp_path, original):
    source, _ = original
    tool.refused(tool.convert(source, tmp_path / "out", "--to", "hf", expect=3), "several families", "--family", "--hf-template")
