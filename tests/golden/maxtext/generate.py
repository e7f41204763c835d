# SPDX-License-Identifier: Apache-2.0
"""Names, dtypes and shapes of what MaxText 0.2.5 itself would save, for small configurations of each family.

    python tests/golden/maxtext/generate.py [CASE ...]

The state is made by nnx.eval_shape (no weights), reshaped by MaxText's own to_checkpoint_dict, and its tree is written by
Orbax, whose _METADATA then says keys, key types and value types. The Linen form, which 0.2.5 no longer trains with, is
made of optax and flax's TrainState over {"params": P}.

One JSON a case: {"family": ours, "model_name": MaxText's, "config": MaxText's sizes, "scan_layers": bool, "opt_type": "...",
"form": "nnx"|"linen", "extra": further settings, "tree": [[path, value type, dtype, shape], ...]}; in a path an integer is an
index of a sequence. Left out: random generators, and AdamW's state but for the families of WITH_STATE (it repeats the names).
"""
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import sys
import tempfile

os.environ.update(JAX_PLATFORMS="cpu", DECOUPLE_GCLOUD="TRUE", HF_HUB_OFFLINE="1", TF_CPP_MIN_LOG_LEVEL="3", OMP_NUM_THREADS="1")
HERE = pathlib.Path(__file__).parent

SMALL = dict(base_emb_dim=64, base_num_query_heads=4, base_num_kv_heads=2, base_mlp_dim=96, base_num_decoder_layers=3, vocab_size=250, head_dim=24)
MOE = dict(SMALL, num_experts=6, num_experts_per_tok=2, base_moe_mlp_dim=40)
MLA = dict(base_emb_dim=64, base_num_query_heads=4, base_num_kv_heads=4, base_mlp_dim=96, base_num_decoder_layers=4, vocab_size=250, num_experts=6,
           num_experts_per_tok=2, base_moe_mlp_dim=40, shared_experts=2, first_num_dense_layers=1, kv_lora_rank=20, qk_nope_head_dim=16,
           qk_rope_head_dim=8, v_head_dim=12, mtp_num_layers=0)
DELTA = dict(shared_experts=1, gdn_num_key_heads=2, gdn_num_value_heads=4, gdn_key_head_dim=12, gdn_value_head_dim=20, gdn_conv_kernel_dim=3)
# family of ours -> (MaxText's model name, sizes)
FAMILIES = {
    "llama": ("llama3.1-8b", SMALL),
    "mistral": ("mistral-7b", SMALL),
    "qwen2": ("qwen2.5-7b", SMALL),
    "qwen3": ("qwen3-0.6b", SMALL),
    "qwen3_moe": ("qwen3-30b-a3b", MOE),
    "mixtral": ("mixtral-8x7b", dict(MOE, base_mlp_dim=40)),
    "deepseek_v2": ("deepseek2-16b", dict(MLA, q_lora_rank=0)),
    "deepseek_v3": ("deepseek3-671b", dict(MLA, q_lora_rank=28, n_routing_groups=2, topk_routing_group=1)),
    "gemma2": ("gemma2-2b", SMALL),
    "gemma3": ("gemma3-4b", dict(SMALL, base_num_decoder_layers=8, use_multimodal=False)),
    "gpt_oss": ("gpt-oss-20b", dict(MOE, base_num_decoder_layers=4)),
    "olmo3": ("olmo3-7b", dict(SMALL, base_num_kv_heads=4, base_num_decoder_layers=8)),
    "llama4": ("llama4-17b-128e", dict(MOE, base_num_decoder_layers=8, num_experts_per_tok=1, shared_experts=1, interleave_moe_layer_step=2)),
    "qwen3_next": ("qwen3-next-80b-a3b", dict(MOE, **DELTA, base_num_decoder_layers=11)),   # two blocks of four layers, three left over
    "qwen3_5_moe": ("qwen3.5-35b-a3b", dict(MOE, **DELTA, base_num_decoder_layers=8, use_multimodal=False, use_mrope=False)),
}
WITH_STATE = ("llama", "qwen3", "qwen3_moe", "deepseek_v3")
CASES = {}
for family in FAMILIES:
    for scan in (True, False):
        CASES[f"{family}_{'scanned' if scan else 'unscanned'}_adamw_nnx"] = (family, scan, "adamw", "nnx", {})
for family in ("qwen3", "qwen3_moe", "deepseek_v3"):
    CASES[f"{family}_scanned_muon_nnx"] = (family, True, "muon", "nnx", {})
    if family != "deepseek_v3":  # whose routed bias 0.2.5 has no longer among the parameters
        CASES[f"{family}_scanned_muon_linen"] = (family, True, "muon", "linen", {})
CASES["deepseek_v3_mtp_adamw_nnx"] = ("deepseek_v3", True, "adamw", "nnx", {"mtp_num_layers": 2})
CASES["qwen3_next_scanned_muon_nnx"] = ("qwen3_next", True, "muon", "nnx", {})
CASES["qwen3_next_axis0_adamw_nnx"] = ("qwen3_next", True, "adamw", "nnx", {"param_scan_axis": 0})
CASES["qwen3_scanned_adam_pax_nnx"] = ("qwen3", True, "adam_pax", "nnx", {})
CASES["qwen3_scanned_adamw_linen"] = ("qwen3", True, "adamw", "linen", {})
CASES["qwen3_axis0_adamw_nnx"] = ("qwen3", True, "adamw", "nnx", {"param_scan_axis": 0})
CASES["qwen3_moe_axis0_adamw_nnx"] = ("qwen3_moe", True, "adamw", "nnx", {"param_scan_axis": 0})
CASES["llama_axis2_adamw_nnx"] = ("llama", True, "adamw", "nnx", {"param_scan_axis": 2})


def initialize(family, scan, opt_type, extra):
    from maxtext.configs import pyconfig
    from maxtext.utils.globals import MAXTEXT_CONFIGS_DIR

    name, sizes = FAMILIES[family]
    words = dict(sizes, model_name=name, override_model_config=True, run_name="golden", hardware="cpu", skip_jax_distributed_system=True,
                 attention="dot_product", scan_layers=scan, dtype="float32", weight_dtype="float32", per_device_batch_size=1, max_target_length=32,
                 max_prefill_predict_length=16, megablox=False, sparse_matmul=False, capacity_factor=-1.0, enable_checkpointing=False,
                 opt_type=opt_type, steps=10, **extra)
    argv = ["generate", os.path.join(MAXTEXT_CONFIGS_DIR, "base.yml")] + [f"{k}={v}" for k, v in words.items()]
    return pyconfig.initialize(argv), sizes


def abstract_tree(config, form):
    import jax
    import jax.numpy as jnp
    import optax
    from flax import nnx
    from flax.training import train_state
    from maxtext.common import train_state_nnx
    from maxtext.optimizers import optimizers
    from maxtext.utils import maxtext_utils, model_creation_utils, muon_utils

    mesh = jax.sharding.Mesh(maxtext_utils.create_device_mesh(config), config.mesh_axes)
    make = model_creation_utils.get_nnx_create_model_fn(config, mesh=mesh)
    schedule = maxtext_utils.create_learning_rate_schedule(config)

    def build():
        model = make()
        return train_state_nnx.TrainStateNNX(model, nnx.Optimizer(model, optimizers.get_optimizer(config, schedule, model, mesh=mesh), wrt=nnx.Param))

    state = nnx.eval_shape(build)
    tree = train_state_nnx.to_checkpoint_dict(state)
    if form == "nnx":
        return tree
    params = {"params": tree["params"]["params"]}
    if config.opt_type == "muon":
        numbers = muon_utils.get_transform_tree(params)
        tx = optax.contrib.muon(schedule, beta=config.muon_beta, muon_weight_dimension_numbers=numbers, mu_dtype=config.mu_dtype)
    else:
        tx = optimizers.get_optimizer(config, schedule)
    linen = jax.eval_shape(lambda p: train_state.TrainState.create(apply_fn=None, params=p, tx=tx), params)
    return {"params": linen.params, "opt_state": linen.opt_state, "step": jax.ShapeDtypeStruct((), jnp.int32)}


def saved_metadata(tree):
    import jax
    import jax.numpy as jnp
    import orbax.checkpoint as ocp

    def fill(leaf):
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jnp.zeros((), jnp.uint32)
        return jnp.zeros(leaf.shape, leaf.dtype)

    shapes = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        shapes[tuple(str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", None)))) for k in path)] = leaf
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "items"
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=True)) as saver:
            saver.save(target, args=ocp.args.PyTreeSave(jax.tree.map(fill, tree)))
        rows = json.loads((target / "_METADATA").read_text())["tree_metadata"]
    out = []
    for row in rows.values():
        path = [int(k["key"]) if k["key_type"] == 1 else k["key"] for k in row["key_metadata"]]
        kind = row["value_metadata"]["value_type"]
        leaf = shapes.get(tuple(str(k) for k in path))
        if kind == "None":
            out.append([path, kind, None, None])
        else:
            out.append([path, kind, str(leaf.dtype), list(leaf.shape)])
    return sorted(out, key=lambda row: [str(k) for k in row[0]])


def write_manifest():
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("maxtext", "jax", "flax", "optax", "orbax-checkpoint"))
    lines = [f"# made by generate.py with python {platform.python_version()}, {versions}"]
    for path in sorted(HERE.glob("*.json")):
        data = path.read_bytes()
        lines.append(f"{hashlib.sha256(data).hexdigest()} {len(data):6} {path.name}")
    (HERE / "MANIFEST").write_text("\n".join(lines) + "\n")


def main(names):
    import jax

    jax.config.update("jax_default_prng_impl", "unsafe_rbg")
    for name in names or CASES:
        family, scan, opt_type, form, extra = CASES[name]
        config, sizes = initialize(family, scan, opt_type, extra)
        tree = abstract_tree(config, form)
        rows = [row for row in saved_metadata(tree) if not {"rngs", "dropout"} & set(row[0])]
        if family not in WITH_STATE and opt_type == "adamw":
            rows = [row for row in rows if row[0][0] != "opt_state"]
        head = {"family": family, "model_name": FAMILIES[family][0], "config": sizes, "scan_layers": scan, "opt_type": opt_type, "form": form, "extra": extra}
        text = "{" + json.dumps(head)[1:-1] + ',\n"tree": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]}\n"
        (HERE / f"{name}.json").write_text(text)
        print(name, len(rows), flush=True)
    write_manifest()


if __name__ == "__main__":
    main(sys.argv[1:])
