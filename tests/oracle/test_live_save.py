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
