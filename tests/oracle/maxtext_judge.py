"""MaxText 0.2.5 itself, on the CPU: what it computes from a checkpoint, and what of a training state it finds there. Runs in the
environment `maxtext` (scripts/setup_test_env.sh maxtext), one process for many cases:

    python maxtext_judge.py JOB.json RESULT.json

JOB: {case: {"model_name": ..., "settings": {MaxText's settings}, "items": STEP/items, and "hf": directory (logits) or "state": "adamw" |
"muon" | "adam_pax" (the full state)}}. RESULT: {case: {"max_difference", "scale", "kl"}} of the logits against transformers' (and "prediction": [the
loss of the layer of multi-token prediction, what it should be]), or {"found": {array
name: [dtype, shape, sha256 of the bytes]}, "not_found": [names]}; {"error": text} where MaxText refuses.
"""
import hashlib
import json
import os
import sys
import traceback

os.environ |= {"JAX_PLATFORMS": "cpu", "DECOUPLE_GCLOUD": "TRUE", "HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

import jax
import jax.numpy as jnp
import numpy as np

LENGTH = 32


def configure(job):
    from maxtext.configs import pyconfig
    from maxtext.utils.globals import MAXTEXT_CONFIGS_DIR

    words = dict(model_name=job["model_name"], override_model_config=True, run_name="oracle", hardware="cpu", skip_jax_distributed_system=True,
                 attention="dot_product", dtype="float32", weight_dtype="float32", matmul_precision="highest", float32_logits=True,
                 per_device_batch_size=1, max_target_length=LENGTH, max_prefill_predict_length=16, megablox=False, sparse_matmul=False,
                 capacity_factor=-1.0, enable_checkpointing=False, steps=10, **job["settings"])
    return pyconfig.initialize(["judge", os.path.join(MAXTEXT_CONFIGS_DIR, "base.yml")] + [f"{key}={value}" for key, value in words.items()])


def mesh_of(config):
    from maxtext.utils import maxtext_utils

    return jax.sharding.Mesh(maxtext_utils.create_device_mesh(config), config.mesh_axes)


def builder(config):
    """The mesh, and what makes the model on it."""
    from maxtext.utils import model_creation_utils

    mesh = mesh_of(config)
    return mesh, model_creation_utils.get_nnx_create_model_fn(config, mesh=mesh)


def loaded_model(config, items):
    """As pre-training loads parameters alone."""
    from flax import nnx
    from maxtext.common import checkpointing
    from maxtext.utils import model_creation_utils

    mesh = mesh_of(config)
    make, abstract = model_creation_utils.create_nnx_abstract_model(config, mesh)
    wanted, _ = nnx.split_state(nnx.state(abstract), lambda path, leaf: not isinstance(leaf, (nnx.RngState, nnx.Cache, nnx.Intermediate, nnx.BatchStat)), ...)
    with mesh:
        model = make()
        params = checkpointing.load_params_from_path(items, wanted, config.checkpoint_storage_concurrent_gb)
        nnx.update(model, params)
    return model, mesh


def prediction_loss(reference, directory, tokens):
    """The summed cross entropy of DeepSeek's first layer of multi-token prediction, which transformers does not build: the tensors of such a layer
    are those of one decoder layer more, and norms and a projection before it."""
    import pathlib
    import safetensors.torch
    import torch
    import transformers

    tensors = {}
    for file in pathlib.Path(directory).glob("*.safetensors"):
        tensors |= safetensors.torch.load_file(file)
    last = reference.config.num_hidden_layers
    own = {name.removeprefix(f"model.layers.{last}."): tensor for name, tensor in tensors.items() if name.startswith(f"model.layers.{last}.")}
    config = transformers.AutoConfig.from_pretrained(directory)
    config.num_hidden_layers = last + 1
    deeper = transformers.AutoModelForCausalLM.from_pretrained(directory, config=config, dtype=torch.float32, attn_implementation="eager").eval()
    hidden = []
    hook = reference.model.norm.register_forward_pre_hook(lambda module, inputs: hidden.append(inputs[0]))
    reference(tokens, use_cache=False)
    hook.remove()

    def norm(x, weight):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps) * weight

    both = torch.cat([norm(reference.get_input_embeddings()(tokens[:, 1:]), own["enorm.weight"]), norm(hidden[0][:, :-1], own["hnorm.weight"])], -1)
    deeper.model.layers = torch.nn.ModuleList([deeper.model.layers[last]])
    deeper.config.num_hidden_layers = 1
    deeper.model.norm.weight.data = own["shared_head.norm.weight"]
    found = deeper(inputs_embeds=both @ own["eh_proj.weight"].T, use_cache=False).logits
    return torch.nn.functional.cross_entropy(found[0, :-1], tokens[0, 2:], reduction="sum")


def logits(job):
    import torch
    import transformers

    torch.set_num_threads(1)
    reference = transformers.AutoModelForCausalLM.from_pretrained(job["hf"], dtype=torch.float32, attn_implementation="eager").eval()
    config = configure(job)
    vocabulary = reference.config.get_text_config().vocab_size
    tokens = np.random.default_rng(11).integers(3, vocabulary, (1, 24))
    with torch.no_grad():
        expected = reference(torch.tensor(tokens), use_cache=False).logits.float().numpy()
        predicted = prediction_loss(reference, job["hf"], torch.tensor(tokens)) if job["settings"].get("mtp_num_layers") else None
    model, mesh = loaded_model(config, job["items"])
    padded = np.zeros((1, LENGTH), np.int32)
    padded[:, :24] = tokens
    segments = (np.arange(LENGTH) < 24).astype(np.int32)[None]
    # A prediction layer's target is the target after next.
    targets = {} if predicted is None else {"decoder_target_tokens": jnp.asarray(np.roll(padded, -1, 1)), "decoder_target_mask": jnp.asarray(np.roll(segments, -1, 1))}
    with mesh:
        found = model(decoder_input_tokens=jnp.asarray(padded), decoder_positions=jnp.arange(LENGTH)[None], decoder_segment_ids=jnp.asarray(segments), enable_dropout=False, **targets)
    found = np.asarray(found[0] if isinstance(found, tuple) else found, np.float32)[:, :24, :vocabulary]
    softmax = [jax.nn.log_softmax(jnp.asarray(x, jnp.float32)) for x in (expected, found)]
    kl = float(jnp.max(jnp.sum(jnp.exp(softmax[0]) * (softmax[0] - softmax[1]), -1)))
    result = {"max_difference": float(np.abs(found - expected).max()), "scale": float(np.abs(expected).mean()), "kl": kl}
    if predicted is not None:
        result["prediction"] = [float(np.asarray(model.mtp_block.losses[...])[0]), float(predicted)]
    return result


def state(job, adapt=lambda model: None):
    """As training continues from load_full_state_path. A leaf that is still abstract was not found, of which MaxText says nothing.
    `adapt` changes the model once it is made."""
    from maxtext.common import checkpointing, train_state_nnx
    from flax import nnx
    from maxtext.optimizers import optimizers
    from maxtext.utils import maxtext_utils

    config = configure(job | {"settings": job["settings"] | {"opt_type": job["state"]}})
    mesh, make = builder(config)
    schedule = maxtext_utils.create_learning_rate_schedule(config)

    def build():
        model = make()
        adapt(model)
        return train_state_nnx.TrainStateNNX(model, nnx.Optimizer(model, optimizers.get_optimizer(config, schedule, model, mesh=mesh), wrt=nnx.Param))

    abstract = maxtext_utils.get_abstract_state(config, mesh, build, True)[0]
    restored, _ = checkpointing.load_state_if_possible(None, None, "", job["items"], config.checkpoint_storage_concurrent_gb, abstract, enable_orbax_v1=False,
                                                       source_checkpoint_layout="orbax", maxtext_config=config)
    tree = train_state_nnx.to_checkpoint_dict(restored["items"] if isinstance(restored, dict) else restored)
    result = {"found": {}, "not_found": []}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = ".".join(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", None)))) for key in path)
        if isinstance(leaf, jax.ShapeDtypeStruct):
            result["not_found"].append(name)
        elif not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            data = np.asarray(leaf)
            result["found"][name] = [str(data.dtype), list(data.shape), hashlib.sha256(np.ascontiguousarray(data).tobytes()).hexdigest()]
    return result


def main(job_file, result_file):
    jax.config.update("jax_default_prng_impl", "unsafe_rbg")
    with open(job_file) as file:
        jobs = json.load(file)
    results = {}
    for name, job in jobs.items():
        try:
            results[name] = logits(job) if "hf" in job else state(job)
        except Exception:  # a refusal of MaxText is a result
            results[name] = {"error": traceback.format_exc()[-3000:]}
        with open(result_file, "w") as file:
            json.dump(results, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
