"""Random states of a run's ranks: where the layout stays what it is, a run goes on from what another one saved with the very states that
its ranks had, whatever form lies between; where it changes they are dropped by name, and the run that loads is not told to look for them."""
import functools
import pathlib
import pickle
import random

import pytest

import tool

tool.require()

import numpy
import torch

import legacy_load
import mcore_env as env
import mcore_write
import models

FORMS = {"megatron": "torch_dist", "megatron-legacy": "torch"}
NAMES = ("model-parallel-rng", "expert-parallel-rng", "data-parallel-rng")


def states():
    """What a rank would go on with."""
    tracker = {name: state.clone() for name, state in env.get_cuda_rng_tracker().get_states().items()}
    return {"python": random.getstate(), "numpy": pickle.dumps(numpy.random.get_state()), "torch": torch.get_rng_state(), "tracker": tracker}


def scramble(seed):
    """As after some steps: numbers drawn, half of a pair of normal ones kept back."""
    random.seed(seed)
    random.gauss(0, 1)
    numpy.random.seed(seed)
    numpy.random.randn(3)
    torch.manual_seed(seed)
    torch.rand(seed % 7 + 1)
    env.get_cuda_rng_tracker().states_ = {name: torch.randint(0, 256, (16,), dtype=torch.uint8) for name in NAMES}


def differing(found, expected):
    def same(name):
        if name == "tracker":
            return set(found[name]) == set(expected[name]) and all(torch.equal(found[name][key], expected[name][key]) for key in expected[name])
        return torch.equal(found[name], expected[name]) if name == "torch" else found[name] == expected[name]
    return [name for name in expected if not same(name)]


def arguments(config, layout, root, form, **more):
    return env.training_args(config, layout, root, optimizer=False, ckpt_format=form, use_dist_ckpt=form == "torch_dist", no_load_rng=False, **more)


def saver(rank, root, config, parameters, layout, form):
    env.initialize(layout)
    model = env.build_model(config, layout)
    mcore_write.fill_model(model, config, parameters, layout)
    wrapped, _, _ = env.build_optimizer(model, layout)
    # Data-parallel ranks draw alike: the one of them that writes stands for all.
    scramble(11 + env.parallel_state.get_tensor_model_parallel_rank() + 5 * env.parallel_state.get_pipeline_model_parallel_rank())
    held = states()
    env.use_args(arguments(config, layout, root, form))
    env.training_checkpointing.save_checkpoint(20, [wrapped], None, None, 0)
    return held


def loader(rank, root, config, layout, form):
    from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
    env.initialize(layout)
    env.use_args(arguments(config, layout, root, form))
    init_num_microbatches_calculator(rank, None, 8, 4, layout.dp)
    wrapped, _, _ = env.build_optimizer(env.build_model(config, layout), layout)
    scramble(977 + rank)
    iteration, _ = env.training_checkpointing.load_checkpoint([wrapped], None, None)
    assert iteration == 20, iteration
    return states()


@functools.cache
def source(root, form, layout):
    config, parameters = models.parameters("qwen3")
    root = pathlib.Path(root)
    root.mkdir(parents=True)
    return env.run_ranks(layout.world, saver, root, config, parameters, layout, FORMS[form])


def expect_states(root, layout, form, expected):
    config, _ = models.parameters("qwen3")
    for rank, found in enumerate(env.run_ranks(layout.world, loader, root, config, layout, FORMS[form])):
        assert not differing(found, expected[rank]), f"rank {rank}: {differing(found, expected[rank])}"


@pytest.mark.parametrize("layout", [env.Layout(2, 2), env.Layout(1, 2, dp=2)], ids=["tp2-pp2", "pp2-dp2"])
@pytest.mark.parametrize("to", FORMS)
@pytest.mark.parametrize("written", FORMS)
def test_the_same_layout_goes_on_with_the_same_states(tmp_path, written, to, layout):
    expected = source(str(tmp_path / "run"), written, layout)
    assert differing(expected[0], expected[-1]) == ["python", "numpy", "torch", "tracker"], "the ranks of the run do not differ"
    text = tool.convert(tmp_path / "run", tmp_path / "out", "--to", to, *tool.layout_words(layout))
    assert f"the random states of {layout.tp * layout.pp} ranks are carried" in text, text
    assert "rng_state" not in text and "--no-load-rng" not in text, text
    expect_states(tmp_path / "out", layout, to, expected)


@pytest.mark.parametrize("written,to", [("megatron", "megatron-legacy"), ("megatron-legacy", "megatron")])
def test_a_full_state_keeps_them(tmp_path, written, to):
    layout = env.Layout(2, 2)
    expected = source(str(tmp_path / "run"), written, layout)
    assert "rng_state" not in tool.convert(tmp_path / "run", tmp_path / "full", "--to", "full-state")
    tool.convert(tmp_path / "full", tmp_path / "again", "--to", "full-state", "--max-shard-size", "50KB")
    text = tool.convert(tmp_path / "again", tmp_path / "out", "--to", to, *tool.layout_words(layout), "--iteration", 20)
    assert "the random states of 4 ranks are carried" in text and "rng_state" not in text, text
    expect_states(tmp_path / "out", layout, to, expected)
    for words, reason in ((["--to", to, "--tp", 2], "the layout is another"), (["--to", to, *tool.layout_words(layout), "--no-rng"], "left behind by --no-rng"),
                          (["--to", "full-state", "--no-rng"], "left behind by --no-rng"), (["--to", "hf"], "belong to the ranks")):
        target = tmp_path / str(abs(hash(tuple(map(str, words)))))
        tool.refused(tool.convert(tmp_path / "again", target, *words), "rng_state", reason)


@pytest.mark.parametrize("written", FORMS)
def test_another_layout_and_no_rng_drop_them_by_name(tmp_path, written):
    home, away = env.Layout(2, 1), env.Layout(1, 2)
    source(str(tmp_path / "run"), written, home)
    for words, reason in ((tool.layout_words(away), "the layout is another"), ([*tool.layout_words(home), "--no-rng"], "left behind by --no-rng")):
        for to in FORMS:
            out = tmp_path / f"{to}-{len(words)}"
            text = tool.convert(tmp_path / "run", out, "--to", to, *words)
            tool.refused(text, "rng_state", reason)
            assert "are carried" not in text
            layout = away if reason.startswith("the") else home
            common = legacy_load.read(next(out.glob("*/mp_rank_00*/model_optim_rng.pt"))) if to == "megatron-legacy" else torch.load(tool.step_of(out) / "common.pt", weights_only=False)
            assert common["args"].no_save_rng and "rng_state" not in common
            config, _ = models.parameters("qwen3")
            if to == "megatron":                 # Megatron sees that there are none, and loads the rest without a flag
                env.run_ranks(layout.world, loader, out, config, layout, "torch_dist")
