"""Real Megatron-Core ranks on gloo save a Hugging Face directory through crossdock.megatron; judge: the directory that the command makes of
what training's own save_checkpoint (--ckpt-format torch) wrote of the same models, compared byte by byte."""
import pathlib

import tool

crossdock = tool.package()

import pytest
import torch

import mcore_env as env
import models
from mcore_write import ITERATION, fill_model

WAYS = {
    "bf16": ({}, []),
    "fp32": ({"dtype": "fp32"}, ["--dtype", "fp32"]),
    "block": ({"dtype": "fp8", "fp8": {"strategy": "block", "block": (16, 24)}}, ["--fp8", "block", "--fp8-block-size", "16", "24"]),
    "channel": ({"dtype": "fp8", "fp8": {"strategy": "channel"}, "mode": "snapshot"}, ["--fp8", "channel"]),
    "tensor": ({"dtype": "fp8", "fp8": {"strategy": "tensor"}}, ["--fp8", "tensor"]),
}
TOLD = []


def told(args, hf_path, rollout_id, *, dtype, is_lora):
    TOLD.append((hf_path, rollout_id, dtype))
    raise RuntimeError("nobody listens")


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(pathlib.Path(folder).rglob("*")) if path.is_file()}


def save_rank(rank, root, reference, config, parameters, layout, ways):
    import crossdock.megatron
    env.initialize(layout)
    model = env.build_model(config, layout)
    fill_model(model, config, parameters, layout)
    args = env.training_args(config, layout, root / "run", torch.bfloat16, ITERATION, False, ckpt_format="torch", use_dist_ckpt=False, use_distributed_optimizer=False)
    env.use_args(args)
    env.training_checkpointing.save_checkpoint(ITERATION, [model], None, None, 123456789)
    for way in ways:
        exporter = crossdock.megatron.exporter(model, root / way / "{step:03d}", reference, threads=1, post_hook="test_live_save.told", **WAYS[way][0])
        exporter.validate()
        tensors = crossdock.megatron.host_tensors(model)
        exporter.save(1, tensors)
        # A rank whose loop raises: the others are told, and the next save is as good as the first.
        last = rank == layout.world - 1
        with pytest.raises(ZeroDivisionError if last else crossdock.CancelledError, match="in the loop"):
            exporter.save(2, _raising(tensors) if last else tensors)
        exporter.save(3, tensors, final=True)
    crossdock.megatron.save_hf(model, root / "once", reference, 4, threads=1)
    return TOLD


def _raising(tensors):
    yield next(iter(tensors.items()))
    raise ZeroDivisionError("in the loop")


CELLS = [
    ("qwen3", env.Layout(tp=2, pp=2), ("bf16", "fp32", "block", "channel", "tensor")),
    ("qwen3", env.Layout(tp=4, dp=2), ("tensor",)),
    ("qwen3_moe", env.Layout(dp=2, ep=2), ("bf16", "block")),
    ("qwen3_moe", env.Layout(tp=2, dp=2, ep=2, etp=1), ("channel",)),
]


@pytest.mark.parametrize("case,layout,ways", CELLS, ids=[f"{case}-{layout}" for case, layout, _ in CELLS])
def test_online_is_offline_byte_by_byte(workshop, case, layout, ways, tmp_path):
    reference, config, _ = workshop.hf(case)
    config, parameters = models.parameters(case)
    results = env.run_ranks(layout.world, save_rank, tmp_path, reference, config, parameters, layout, ways)
    for way in ways:
        tool.run("convert", tmp_path / "run", tmp_path / "offline" / way, "--to", "hf", "--hf-template", reference, *WAYS[way][1])
        expected = tree(tmp_path / "offline" / way)
        assert sorted(path.name for path in (tmp_path / way).iterdir()) == ["001", "003"]
        for step in ("001", "003"):
            assert tree(tmp_path / way / step) == expected, f"{case} {layout} {way}"
    if "bf16" in ways:
        assert tree(tmp_path / "once" / "iter_0000004") == tree(tmp_path / "offline" / "bf16")
    dtype = {"bf16": "bf16", "fp32": "fp32"}
    assert results[0] == [(str(tmp_path / way / f"{step:03d}"), step, dtype.get(way, "fp8")) for way in ways for step in (1, 3)]
    assert not any(results[1:])


def interrupted_rank(rank, root, reference, config, parameters, layout):
    """Seconds from Ctrl-C to the end of a save whose other rank does not come."""
    import signal
    import threading
    import time
    import crossdock.megatron
    env.initialize(layout)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    model = env.build_model(config, layout)
    fill_model(model, config, parameters, layout)
    exporter = crossdock.megatron.exporter(model, root / "{step}", reference, threads=1)
    exporter.save(1, crossdock.megatron.host_tensors(model))
    if rank == 1:
        end = time.monotonic() + 120
        while not (root / "over").exists() and time.monotonic() < end:
            time.sleep(0.05)
        return None
    begun = []
    threading.Timer(1, lambda: (begun.append(time.monotonic()), signal.pthread_kill(threading.main_thread().ident, signal.SIGINT))).start()
    with pytest.raises(KeyboardInterrupt):
        exporter.save(2, crossdock.megatron.host_tensors(model))
    (root / "over").touch()
    return time.monotonic() - begun[0]


def test_ctrl_c_ends_the_waiting_for_a_rank_of_gloo(workshop, tmp_path):
    config, parameters = models.parameters("qwen3")
    seconds = env.run_ranks(2, interrupted_rank, tmp_path, workshop.hf("qwen3")[0], config, parameters, env.Layout(tp=2))
    assert seconds[0] < 20
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "over"]


# --- the run itself ---------------------------------------------------------------------------------------------------
def run_rank(rank, root, reference, config, parameters, layout, distributed, dtype, mode):
    """Three steps, a save, one more step; a second model loads what was saved, as training does, and makes that step too."""
    import crossdock.megatron
    import mcore_train
    from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
    env.initialize(layout)
    init_num_microbatches_calculator(rank, None, 24, 4, layout.dp)
    args = env.training_args(config, layout, root / "run", dtype, 3, use_distributed_optimizer=distributed, no_load_rng=False)
    env.use_args(args)

    def build():
        model = env.build_model(config, layout, dtype)
        return model, *env.build_optimizer(model, layout, dtype, distributed=distributed)

    def clone():
        return {name: tensor.clone() for name, tensor in crossdock.megatron.run_state(model, optimizer).items()}

    model, wrapped, optimizer, scheduler = build()
    fill_model(model, config, parameters, layout, pad=0.0)
    optimizer.reload_model_params()
    saver = crossdock.megatron.checkpointer(model, optimizer, root / "run", reference, threads=1, mode=mode)
    saver.validate()
    common = crossdock.megatron.common_state
    saver.save(0, crossdock.megatron.run_state(model, optimizer), common=common(0, optimizer, scheduler) if rank == 0 else b"")
    mcore_train.take_steps(model, optimizer, config, parameters, layout, range(1, 4))
    scheduler.step(3 * 8)
    expected = clone()
    saver.save(3, crossdock.megatron.run_state(model, optimizer), final=mode == "sync",
               common=common(3, optimizer, scheduler, num_floating_point_operations_so_far=77) if rank == 0 else b"")
    mcore_train.take_steps(model, optimizer, config, parameters, layout, [4])
    further = clone()
    saver.flush()
    if distributed and dtype == torch.bfloat16 and layout.ep == 1:
        model, wrapped, optimizer, scheduler = build()   # for the offline tool, of the same state
        _load(args, wrapped, optimizer, scheduler)
        legacy = {"ckpt_format": "torch", "use_dist_ckpt": False, "dist_ckpt_optim_fully_reshardable": False}
        env.use_args(env.training_args(config, layout, root / "legacy", dtype, 3, use_distributed_optimizer=True, **legacy))
        env.training_checkpointing.save_checkpoint(3, [wrapped], optimizer, scheduler, 77)
        env.use_args(args)
    model, wrapped, optimizer, scheduler = build()
    assert _load(args, wrapped, optimizer, scheduler) == (3, 77) and scheduler.num_steps == 24
    problems = _differing(expected, clone())
    mcore_train.take_steps(model, optimizer, config, parameters, layout, [4])
    return problems + [f"after the next step: {name}" for name in _differing(further, clone())], len(expected)


def _load(args, wrapped, optimizer, scheduler):
    args.consumed_train_samples = args.skipped_train_samples = args.consumed_valid_samples = 0   # those of the checkpoint are taken
    return env.training_checkpointing.load_checkpoint([wrapped], optimizer, scheduler)


def _differing(expected, found):
    """Names of tensors that are not bit for bit the same."""
    return sorted(expected.keys() ^ found.keys()) + [name for name in expected.keys() & found.keys() if not torch.equal(expected[name].reshape(-1).view(torch.uint8), found[name].reshape(-1).view(torch.uint8))]


RUNS = [
    ("qwen3", env.Layout(tp=2, pp=2), False, torch.bfloat16, "snapshot"),
    ("qwen3", env.Layout(tp=2, dp=3), True, torch.bfloat16, "snapshot"),
    ("qwen3", env.Layout(pp=2), False, torch.float32, "sync"),
    ("qwen3_moe", env.Layout(tp=2, dp=2, ep=2, etp=1), True, torch.bfloat16, "sync"),
    ("qwen3_moe", env.Layout(dp=2, ep=2), False, torch.bfloat16, "sync"),
    ("qwen3_moe", env.Layout(dp=2, ep=2), True, torch.bfloat16, "snapshot"),
]


@pytest.mark.parametrize("case,layout,distributed,dtype,mode", RUNS, ids=[f"{case}-{layout}-{'distributed' if distributed else dtype}" for case, layout, distributed, dtype, _ in RUNS])
def test_a_run_that_saved_itself_goes_on_as_if_nothing_had_been(workshop, case, layout, distributed, dtype, mode, tmp_path):
    reference, _, _ = workshop.hf(case)
    config, parameters = models.parameters(case)
    for rank, (problems, count) in enumerate(env.run_ranks(layout.world, run_rank, tmp_path, reference, config, parameters, layout, distributed, dtype, mode)):
        assert not problems, f"{case} {layout}, rank {rank}: {problems[:6]}"
        assert count
    assert (tmp_path / "run" / "latest_checkpointed_iteration.txt").read_text() == "3"
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["iter_0000000", "iter_0000003", "latest_checkpointed_iteration.txt"]
    if (tmp_path / "legacy").exists():
        tool.run("convert", tmp_path / "legacy", tmp_path / "offline", "--to", "megatron", "--tp", layout.tp, "--pp", layout.pp, "--no-rng")
        online, offline = tree(tmp_path / "run" / "iter_0000003"), tree(tmp_path / "offline" / "iter_0000003")
        assert online.keys() == offline.keys() and [name for name in online if online[name] != offline[name]] == ["common.pt"]


# --- the example ------------------------------------------------------------------------------------------------------
def example_rank(rank, words):
    import sys
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
    import megatron_training
    env.get_cuda_rng_tracker().states_ = {"model-parallel-rng": torch.zeros(16, dtype=torch.uint8)}
    env.transformer_block.LayerNormImpl = env._torch_norm   # layers that compute, as where no TransformerEngine is installed
    return megatron_training.main([str(word) for word in words])


def test_the_example_is_killed_and_goes_on(tmp_path):
    crossdock.demo(tmp_path / "small")
    words = ["--hf", tmp_path / "small" / "hf", "--steps", 6, "--out"]
    with pytest.raises(env.RankFailure):
        env.run_ranks(2, example_rank, [*words, tmp_path / "out", "--die-at", 4])
    assert (tmp_path / "out" / "run" / "latest_checkpointed_iteration.txt").read_text() == "2"
    resumed = env.run_ranks(2, example_rank, [*words, tmp_path / "out"])
    whole = env.run_ranks(2, example_rank, [*words, tmp_path / "whole"])
    assert list(resumed[0]) == [3, 4, 5, 6] and list(whole[0]) == [1, 2, 3, 4, 5, 6]
    assert all(resumed[rank][step] == whole[rank][step] for rank in (0, 1) for step in resumed[0])
    for name in ("run/iter_0000006", "hf/6", "hf-fp8/6"):
        online, other = tree(tmp_path / "out" / name), tree(tmp_path / "whole" / name)
        assert online.keys() == other.keys() and all(online[file] == other[file] for file in online if file != "common.pt"), name
    tool.run("convert", tmp_path / "out" / "run", tmp_path / "offline", "--to", "hf", "--hf-template", tmp_path / "small" / "hf", "--no-optim")
    assert tree(tmp_path / "out" / "hf" / "6")["model.safetensors"] == tree(tmp_path / "offline")["model.safetensors"]
