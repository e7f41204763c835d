# SPDX-License-Identifier: Apache-2.0
"""Trains a small Qwen3 with Megatron-Core, on CPUs and gloo, and saves as a real run would.

    torchrun --nproc-per-node 2 examples/megatron_training.py --hf small/hf --out out --steps 8

Starts from the Hugging Face weights of --hf, or goes on where OUT/run ends. Every --save-every steps it leaves
    OUT/run/iter_*        the run itself, weights and optimizer, in Megatron-Core's torch_dist;
    OUT/hf/STEP           a Hugging Face directory in BF16, and OUT/hf-fp8/STEP one in FP8; a hook is told of the former,
each rank writing its own part while training goes on. --die-at N kills the last rank where the others save step N: start the same command again.
A run that was killed and went on ends with the losses of one that was not. Needs torch, megatron-core and crossdock; examples/megatron_training.sh
makes a model, kills a run and resumes it.
"""
import argparse
import contextlib
import json
import os
import pathlib
import signal

import torch
import torch.distributed

import crossdock.megatron


def on_cpus():
    """What Megatron-Core asks of CUDA, where there is none. A run on GPUs leaves this out."""
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = torch.cuda.empty_cache = torch.cuda.current_stream = lambda *args, **kwargs: None
    torch.cuda.get_rng_state = lambda *args, **kwargs: torch.zeros(16, dtype=torch.uint8)
    for name in ("tensor", "zeros", "ones", "empty", "full"):
        def made(*args, make=getattr(torch, name), **kwargs):
            if "cuda" in str(kwargs.get("device", "")):
                kwargs["device"] = "cpu"
            return make(*args, **kwargs)
        setattr(torch, name, made)
    torch.Tensor.cuda = lambda self, *args, **kwargs: self
    type_of = torch.Tensor.type
    torch.Tensor.type = lambda self, *args, **kwargs: type_of(self, *args, **kwargs) if args or kwargs else "torch.cuda." + type_of(self).rsplit(".", 1)[-1]
    from megatron.core.tensor_parallel.random import get_cuda_rng_tracker
    get_cuda_rng_tracker().fork = lambda *args, **kwargs: contextlib.nullcontext()   # no dropout: nothing is drawn


def build(hf, tp, pp=1):
    """(model under DistributedDataParallel, optimizer, scheduler) for the config.json of a Qwen3."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
    from megatron.core.transformer.transformer_config import TransformerConfig

    config = json.loads((hf / "config.json").read_text())
    megatron = TransformerConfig(
        num_layers=config["num_hidden_layers"], hidden_size=config["hidden_size"], ffn_hidden_size=config["intermediate_size"],
        num_attention_heads=config["num_attention_heads"], num_query_groups=config["num_key_value_heads"], kv_channels=config["head_dim"],
        layernorm_epsilon=config["rms_norm_eps"], normalization="RMSNorm", qk_layernorm=True, gated_linear_unit=True, activation_func=torch.nn.functional.silu,
        add_bias_linear=False, hidden_dropout=0.0, attention_dropout=0.0, bf16=True, params_dtype=torch.bfloat16, tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp, use_cpu_initialization=True, perform_initialization=False, gradient_accumulation_fusion=False,
        bias_activation_fusion=False, bias_dropout_fusion=False, masked_softmax_fusion=False, apply_rope_fusion=False, persist_layer_norm=False,
    )  # fmt: skip
    model = GPTModel(
        config=megatron, transformer_layer_spec=get_gpt_layer_local_spec(normalization="RMSNorm", qk_layernorm=True),
        vocab_size=-(-config["vocab_size"] // (8 * tp)) * 8 * tp, max_sequence_length=64, position_embedding_type="rope",
        rotary_base=float(config.get("rope_theta") or config["rope_parameters"]["rope_theta"]),
        share_embeddings_and_output_weights=bool(config.get("tie_word_embeddings")),
    ).bfloat16()  # fmt: skip
    wrapped = DistributedDataParallel(megatron, DistributedDataParallelConfig(grad_reduce_in_fp32=True), model)
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-3, min_lr=1e-4, weight_decay=0.1, bf16=True, params_dtype=torch.bfloat16), [wrapped])
    scheduler = OptimizerParamScheduler(
        optimizer, init_lr=0.0, max_lr=1e-3, min_lr=1e-4, lr_warmup_steps=2, lr_decay_steps=100, lr_decay_style="cosine", start_wd=0.1, end_wd=0.1,
        wd_incr_steps=0, wd_incr_style="constant",
    )  # fmt: skip
    return wrapped, optimizer, scheduler


def begin(out, hf, model, optimizer, scheduler):
    """Weights of --hf, or all of the run's own last iteration; returns its number."""
    found = crossdock.detect_resume(out / "run" if (out / "run").exists() else None, pretrained_checkpoint=hf)
    if found.kind == "hf":
        crossdock.megatron.load_hf(model, found.path, optimizer=optimizer)
        return 0
    from megatron.core import dist_checkpointing, parallel_state

    metadata = {"dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True), "singleton_local_shards": False, "chained_optim_avoid_prefix": True}
    state = {"model": model.module.sharded_state_dict(metadata=metadata)}
    state["optimizer"] = optimizer.sharded_state_dict(state, is_loading=True, metadata=metadata)
    state = dist_checkpointing.load(state, found.path)
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["opt_param_scheduler"])
    return state["iteration"]


def train_step(step, model, optimizer, scheduler, vocabulary):
    """One step on tokens that its number tells; returns the loss."""
    from megatron.core.distributed import finalize_model_grads

    tokens = torch.randint(0, vocabulary, (4, 17), generator=torch.Generator().manual_seed(step))
    mask = torch.triu(torch.ones(1, 1, 16, 16), diagonal=1).bool()
    model.zero_grad_buffer()
    optimizer.zero_grad()
    loss = model(tokens[:, :-1], torch.arange(16).expand(4, -1), mask, labels=tokens[:, 1:]).float().mean()
    loss.backward()
    finalize_model_grads([model])
    optimizer.step()
    scheduler.step(4)
    return loss.item()


def told(args, hf_path, rollout_id, *, dtype, is_lora):
    """The hook: called on rank 0 when an export is in place."""
    print(f"hook: {dtype} weights of step {rollout_id} are at {hf_path}", flush=True)


def main(given=None):
    """Trains; returns step -> loss of the steps that it made."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--hf", type=pathlib.Path, required=True)
    words.add_argument("--out", type=pathlib.Path, required=True)
    words.add_argument("--steps", type=int, default=8)
    words.add_argument("--save-every", type=int, default=2)
    words.add_argument("--tp", type=int, default=2)
    words.add_argument("--die-at", type=int, default=-1)
    args = words.parse_args(given)

    torch.set_num_threads(1)
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")
    from megatron.core import parallel_state

    parallel_state.initialize_model_parallel(args.tp)
    if not torch.cuda.is_available():
        on_cpus()
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    model, optimizer, scheduler = build(args.hf, args.tp)
    step = begin(args.out, args.hf, model, optimizer, scheduler)
    if rank == 0:
        print(f"from step {step}", flush=True)

    how = {"mode": "snapshot", "threads": 1}
    run = crossdock.megatron.checkpointer(model, optimizer, args.out / "run", args.hf, **how)
    bf16 = crossdock.megatron.exporter(model, args.out / "hf" / "{step}", args.hf, dtype="bf16", post_hook="megatron_training.told", args=args, **how)
    fp8 = crossdock.megatron.exporter(model, args.out / "hf-fp8" / "{step}", args.hf, dtype="fp8", fp8={"strategy": "block"}, on_error="log", **how)
    for saver in (run, bf16, fp8):
        saver.validate()   # what can go wrong is told before training

    vocabulary = json.loads((args.hf / "config.json").read_text())["vocab_size"]
    losses = {}
    while step < args.steps:
        step += 1
        losses[step] = train_step(step, model, optimizer, scheduler, vocabulary)
        if rank == 0:
            print(f"step {step} loss {losses[step]:.6f}", flush=True)
        if step % args.save_every and step != args.steps:
            continue
        if step == args.die_at and rank == size - 1:
            run.flush()   # the one before is in place
            os.kill(os.getpid(), signal.SIGKILL)
        tensors = crossdock.megatron.run_state(model, optimizer)
        weights = crossdock.megatron.host_tensors(model)
        common = crossdock.megatron.common_state(step, optimizer, scheduler) if rank == 0 else b""
        run.save(step, tensors, common=common)
        bf16.save(step, weights)
        fp8.save(step, weights)
    for saver in (run, bf16, fp8):
        saver.flush()
    return losses


if __name__ == "__main__":
    main()
    torch.distributed.destroy_process_group()
