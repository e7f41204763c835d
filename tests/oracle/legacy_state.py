"""Legacy trees with the whole training state, by training's save_checkpoint and load_checkpoint: experts with optimizers of their own, Muon,
layers of multi-token prediction. Every local piece is compared with its slice of a reference. Model and state begin as zeros, so that a
loader which did nothing is seen.

Of what the reference does not name (multi-token prediction) Megatron itself tells: a run loads one form of checkpoint and saves another, and
what stood in numbers and flat buffers comes out under the names that torch_dist gives it, or the other way round.
"""
import pathlib

import torch

import legacy_experts
import mcore_env as env
import mcore_load
import mcore_muon
import mcore_write
from mcore_write import ITERATION, STEP

KINDS = ("plain", "distributed", "muon")


def predicting(layers):
    """Models built from here on have as many layers of multi-token prediction."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_mtp_block_spec
    plain = env.GPTModel

    def build(**how):
        how["config"].mtp_num_layers = layers
        spec = how["transformer_layer_spec"]
        te = how["config"].transformer_impl == "transformer_engine"
        # A stage without decoder layers has a specification of none to take the inner layer from.
        return plain(**how, mtp_block_spec=get_gpt_mtp_block_spec(how["config"], spec, use_transformer_engine=te, vp_stage=None))

    env.GPTModel = build


def build(config, layout, form, kind, mtp):
    if mtp:
        predicting(mtp)
    model = legacy_experts.build(config, layout, torch.bfloat16, form)
    if kind == "muon":
        wrapped, optimizer, scheduler = mcore_muon.build_optimizer(model, layout)
    else:
        wrapped, optimizer, scheduler = env.build_optimizer(model, layout, distributed=kind == "distributed")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model, wrapped, optimizer, scheduler


def begin(optimizer, kind):
    """States that are there, as after a step."""
    if kind == "distributed":
        for inner in env.inner_optimizers(optimizer):
            inner.load_state_dict(inner.state_dict())
    else:
        mcore_muon.begin(optimizer)


def arguments(config, layout, root, form, kind, mtp, torch_dist):
    args = env.training_args(
        config, layout, root, iteration=ITERATION, ckpt_format="torch_dist" if torch_dist else "torch", use_dist_ckpt=torch_dist, auto_detect_ckpt_format=True,
        use_distributed_optimizer=kind == "distributed", transformer_impl="local" if form == "local" else "transformer_engine",
        optimizer="muon" if kind == "muon" else "adam", muon_momentum=0.9, mtp_num_layers=mtp, no_save_rng=True)
    args.override_opt_param_scheduler = True
    return args


def saver(rank, root, config, parameters, state, layout, form, kind):
    env.initialize(layout)
    model, wrapped, optimizer, scheduler = build(config, layout, form, kind, None)
    scheduler.step(7 * 8)
    (mcore_write if kind == "distributed" else mcore_muon).fill_optimizer(optimizer, model, config, state, layout)
    mcore_write.fill_model(model, config, parameters, layout)
    env.use_args(arguments(config, layout, root, form, kind, None, False))
    with legacy_experts.one_at_a_time(root.parent / f"{root.name}.lock"):
        env.training_checkpointing.save_checkpoint(ITERATION, [wrapped], optimizer, scheduler, 123456789)


def save(root, config, parameters, state, layout, form, kind):
    root.mkdir(parents=True)
    env.run_ranks(layout.world, saver, root, config, parameters, state, layout, form, kind)
    return root / f"iter_{ITERATION:07d}"


def load(root, config, layout, form, kind, mtp, torch_dist):
    """(model, wrapped, optimizer, scheduler) of a rank that has loaded the checkpoint."""
    from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
    env.use_args(arguments(config, layout, root, form, kind, mtp, torch_dist))
    init_num_microbatches_calculator(0, None, 4 * layout.dp, 4, layout.dp)
    model, wrapped, optimizer, scheduler = build(config, layout, form, kind, mtp)
    begin(optimizer, kind)
    for inner in env.inner_optimizers(optimizer):                # the step must come from the file
        for group in inner.optimizer.param_groups:
            if "betas" in group:
                group["step"] = -1
    iteration, _ = env.training_checkpointing.load_checkpoint([wrapped], optimizer, scheduler)
    assert iteration == ITERATION, iteration
    return model, wrapped, optimizer, scheduler


def checker(rank, root, config, parameters, state, layout, form, kind):
    env.initialize(layout)
    model, _, optimizer, _ = load(root, config, layout, form, kind, None, False)
    if kind != "distributed":
        return mcore_muon.compare(model, optimizer, config, parameters, state, layout)
    problems, count = mcore_load.compare_rank(model, optimizer, config, parameters, state, layout)
    steps = {group.get("step") for inner in env.inner_optimizers(optimizer) for group in inner.optimizer.param_groups if group["params"]}
    return problems + ([f"steps {steps}"] if steps != {STEP} else []), {"all": count}


def check(root, config, parameters, state, layout, form, kind):
    """The real optimizer loads it. Returns the names of the states that were compared."""
    seen = set()
    for rank, (problems, compared) in enumerate(env.run_ranks(layout.world, checker, root, config, parameters, state, layout, form, kind)):
        assert not problems, f"{layout}, {form}, {kind}, rank {rank}: " + "; ".join(problems[:6])
        assert sum(compared.values()) > 10, compared
        seen |= set(compared)
    return seen


def carry_rank(rank, source, target, config, layout, form, kind, mtp, from_torch_dist):
    env.initialize(layout)
    model, wrapped, optimizer, scheduler = load(source, config, layout, form, kind, mtp, from_torch_dist)
    env.use_args(arguments(config, layout, target, form, kind, mtp, not from_torch_dist))
    with legacy_experts.one_at_a_time(target.parent / f"{target.name}.lock"):
        env.training_checkpointing.save_checkpoint(ITERATION, [wrapped], optimizer, scheduler, 123456789)
    return sum(1 for _ in model.parameters())


def carry(source, target, config, layout, form, kind, mtp=None, from_torch_dist=True):
    """Returns the step's directory. from_torch_dist: what is loaded; the other form is what is saved."""
    target = pathlib.Path(target)
    target.mkdir(parents=True)
    assert min(env.run_ranks(layout.world, carry_rank, pathlib.Path(source), target, config, layout, form, kind, mtp, from_torch_dist)) > 0
    return target / f"iter_{ITERATION:07d}"
