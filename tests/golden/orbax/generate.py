"""Golden Orbax checkpoints by the real Orbax and TensorStore, small: every store, both zarr versions, several devices and processes' databases,
shards of several chunks, foreign codecs, many generations, numbered manifests, tall trees.

Run in the environment of `scripts/setup_test_env.sh jax`. expected.json: for each checkpoint below this folder a dict of array name -> dtype (as
safetensors spells it), shape, sha256 of the row-major little-endian bytes; for each database in `ocdbt/` key -> sha256 of its value.
"""
import hashlib
import json
import os
import pathlib
import shutil
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import tensorstore as ts
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from orbax.checkpoint import v1

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from numpy_golden import forget_place, info, seeded, write_manifest


def tree():
    """Leaves of every kind that a training state has, and names that sort differently with and without their slash."""
    values = {
        "params": {"params": {"decoder": {"kernel": ("bf", (8, 12), jnp.bfloat16), "scale": ("s", (12,), np.float32)},
                              "decoder_norm": ("n", (5,), np.float16), "fp8": ("f8", (4, 4), ml_dtypes.float8_e4m3fn),
                              "fp8b": ("f8b", (4, 4), ml_dtypes.float8_e5m2), "i4": ("i4", (4, 6), ml_dtypes.int4),
                              "flags": ("flags", (3, 3), bool), "bytes": ("by", (7,), np.uint8)}},
        "opt_state": [{"count": ("c", (), np.int32), "mu": ("mu", (32, 12), np.float32)}, None, {"count": ("c2", (), np.int32)}],
        "zeros": ("zeros", (16, 16), np.float32),
        "step": ("step", (), np.int32),
    }
    def make(value, path):
        if isinstance(value, dict):
            return {k: make(v, path + [k]) for k, v in value.items()}
        if isinstance(value, list):
            return [make(v, path + [str(i)]) for i, v in enumerate(value)]
        if value is None:
            return None
        _, shape, dtype = value
        return np.zeros(shape, dtype) if path == ["zeros"] else seeded(".".join(path), shape, dtype)
    return make(values, [])


def flat(value, path=()):
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in flat(item, path + (str(key),)).items()}
    if isinstance(value, (list, tuple)):
        return {k: v for i, item in enumerate(value) for k, v in flat(item, path + (str(i),)).items()}
    return {} if value is None or isinstance(value, str) else {".".join(path): np.asarray(value)}


def on_devices(value, mesh):
    """Two axes over the devices where they divide, else replicated."""
    def put(x):
        spec = PartitionSpec(*[axis if size % 2 == 0 else None for size, axis in zip(x.shape, ("a", "b"))])
        return jax.device_put(x, NamedSharding(mesh, spec))
    return jax.tree.map(put, value)


def fresh(name):
    path = HERE / name
    shutil.rmtree(path, ignore_errors=True)
    return path


def manager(name, value, *, zarr3, ocdbt, save_args=None, **more):
    path = fresh(name)
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3)
    with ocp.CheckpointManager(path, item_names=("items",), item_handlers={"items": handler}) as keeper:
        keeper.save(7, args=ocp.args.Composite(items=ocp.args.PyTreeSave(value, save_args=save_args, **more)), custom_metadata={"scan_layers": True})
        keeper.wait_until_finished()
    return flat(value)


def orbax_cases():
    value = tree()
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("a", "b"))
    out = {}
    out["v0_zarr3"] = manager("v0_zarr3", value | {"text": "hello", "empty": {}}, zarr3=True, ocdbt=True)
    out["v0_zarr2"] = manager("v0_zarr2", on_devices(value, mesh), zarr3=False, ocdbt=True)
    out["directories_zarr3"] = manager("directories_zarr3", on_devices(value, mesh), zarr3=True, ocdbt=False)
    out["directories_zarr2"] = manager("directories_zarr2", value, zarr3=False, ocdbt=False)
    small = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=64), value)
    out["chunked"] = manager("chunked", on_devices(value, mesh), zarr3=True, ocdbt=True, save_args=small, ocdbt_target_data_file_size=256)
    path = fresh("flat")
    ocp.PyTreeCheckpointer(use_ocdbt=True, use_zarr3=True).save(path, value)
    out["flat"] = flat(value)
    path = fresh("v1")
    context = v1.Context(array_options=v1.options.ArrayOptions(saving=v1.options.ArrayOptions.Saving(use_zarr3=True, use_ocdbt=True)))
    with context, v1.training.Checkpointer(path) as keeper:
        keeper.save_checkpointables(3, {"items": value}, custom_metadata={"scan_layers": False})
    out["v1"] = flat(value)
    return out


def foreign_cases():
    """Arrays that TensorStore writes otherwise, under a tree in Orbax' words."""
    path = fresh("foreign")
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    specs = {
        "gzip": [little, {"name": "gzip", "configuration": {"level": 5}}],
        "blosc": [little, {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}}],
        "crc": [little, {"name": "zstd", "configuration": {"level": 1}}, {"name": "crc32c"}],
        "plain": [little],
        "shards": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [2, 3], "codecs": [little, {"name": "zstd", "configuration": {"level": 1}}]}}],
        "front": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [2, 3], "codecs": [little], "index_location": "start"}}],
    }
    out = {}
    rows = {}
    for name, codecs in specs.items():
        value = seeded(name, (10, 20), np.float32)
        if name in ("shards", "front"):
            value[:4, :6] = 0  # the shards hold holes
        spec = {"driver": "zarr3", "kvstore": {"driver": "ocdbt", "base": f"file://{path}/items/"},
                "path": name + "/", "metadata": {"shape": [10, 20], "data_type": "float32", "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 6]}},
                                                 "codecs": codecs}, "create": True}
        ts.open(spec).result().write(value).result()
        out[name] = value
        rows[str((name,))] = {"key_metadata": [{"key": name, "key_type": 2}], "value_metadata": {"value_type": "np.ndarray", "skip_deserialize": False}}
    (path / "items" / "_METADATA").write_text(json.dumps({"tree_metadata": rows, "use_ocdbt": True, "use_zarr3": True}))
    return {"foreign": out}


def databases():
    """Databases of many keys: heights above 1, generations, numbered manifests."""
    out = {}
    for name, config, kind in (("tall", {"max_decoded_node_bytes": 200, "max_inline_value_bytes": 16}, None),
                               ("numbered", {"max_decoded_node_bytes": 500, "version_tree_arity_log2": 1, "manifest_kind": "numbered"}, "numbered"),
                               ("plain", {"compression": None, "max_inline_value_bytes": 0}, None)):
        path = fresh(f"ocdbt/{name}")
        store = ts.KvStore.open({"driver": "ocdbt", "base": f"file://{path}/", "config": config}).result()
        keys = {f"layers_{i}/{part}": hashlib.sha256(f"{i}{part}".encode()).digest()[: 1 + i % 32] for i in range(12) for part in ("a", "b.c", "zarr.json")}
        for at in range(0, len(keys), 12):
            with ts.Transaction() as transaction:
                for key, value in list(keys.items())[at:at + 12]:
                    store.with_transaction(transaction)[key] = value
        out[f"ocdbt/{name}"] = {key: hashlib.sha256(value).hexdigest() for key, value in keys.items()}
        assert {key.decode(): hashlib.sha256(store[key]).hexdigest() for key in store.list().result()} == out[f"ocdbt/{name}"]
    return out


def main():
    arrays = orbax_cases() | foreign_cases()
    expected = {name: {key: info(value) for key, value in values.items()} for name, values in arrays.items()} | databases()
    rows = [json.dumps(key) + ": " + json.dumps(item, sort_keys=True, separators=(",", ":")) for key, item in sorted(expected.items())]
    (HERE / "expected.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")
    forget_place(HERE)
    write_manifest(HERE, ("jax", "orbax-checkpoint", "tensorstore", "numpy"))


if __name__ == "__main__":
    main()
