"""Legacy trees that the tool writes: merged by plain torch, loaded by Megatron's own load_checkpoint, parameters and Adam's state."""
import pytest

import tool

tool.require()

import torch

import full_state
import legacy_load
import mcore_chunks
import mcore_env as env
from reference import assert_same, raw_of, to_megatron

LAYOUTS = [
    ("qwen3", env.Layout(2, 2)), ("qwen2", env.Layout(2, 1)), ("llama32_tied", env.Layout(1, 2)), ("llama32_tied", env.Layout(2, 2)),
    ("llama3_gqa", env.Layout(2, 2, first=3)), ("qwen3_tied", env.Layout(1, 1)), ("qwen2_tied", env.Layout(1, 3)), ("mqa", env.Layout(1, 2)),
    ("qwen3", env.Layout(2, 2, vpp=2)), ("qwen2_tied", env.Layout(1, 3, vpp=2)), ("llama3_gqa", env.Layout(1, 2, vpp=2, cells="Et|tt|t|tL"))]
IDS = [f"{case}-{layout}" for case, layout in LAYOUTS]
ADAM = ["--set", "lr=0.001", "--set", "min_lr=1e-05", "--set", "weight_decay=0.1", "--set", "seq_length=64"]


def stage_starts(config, layout):
    """First layer of each chunk of each stage: Megatron's rule for even virtual stages, by hand for the layout strings here."""
    layers, virtual = config["num_hidden_layers"], layout.vpp or 1
    if layout.cells:
        counts = [cell.count("t") for cell in layout.cells.split("|")]
        return {(cell % layout.pp, cell // layout.pp): sum(counts[:cell]) for cell in range(len(counts))}
    if virtual > 1:
        return {(stage, chunk): chunk * layers // virtual + stage * (layers // virtual // layout.pp) for stage in range(layout.pp) for chunk in range(virtual)}
    first = layout.first if layout.first is not None else layers // layout.pp
    rest = (layers - first) // (layout.pp - 1) if layout.pp > 1 else 0
    return {(stage, 0): 0 if stage == 0 else first + (stage - 1) * rest for stage in range(layout.pp)}


def write(workshop, case, layout, target, optimizer=True, *words):
    source, config, parameters, state = workshop.full_state(case) if optimizer else (*workshop.hf(case), None)
    tool.convert(source, target, "--to", "megatron-legacy", "--iteration", 20, *tool.layout_words(layout), *(ADAM if optimizer else ADAM[-2:]),
                 *(["--hf-template", workshop.hf(case)[0]] if optimizer else []), *words)
    step, = target.glob("iter_0000020")
    assert (target / "latest_checkpointed_iteration.txt").read_text() == "20"
    return step, config, parameters, state


@pytest.mark.parametrize("case,layout", LAYOUTS, ids=IDS)
def test_merged_by_plain_torch(workshop, case, layout, tmp_path):
    step, config, parameters, _ = write(workshop, case, layout, tmp_path / "out", False)
    merged = legacy_load.merge(step, stage_starts(config, layout))
    expected = to_megatron(parameters, config, layout.padded(config["vocab_size"]), numbered=True)
    if config["tie_word_embeddings"] and layout.pp > 1:
        expected["output_layer.weight"] = expected["embedding.word_embeddings.weight"]
    assert_same(raw_of(merged), raw_of(expected))
    assert len(legacy_load.files(step)) == layout.tp * layout.pp


@pytest.mark.parametrize("case,layout", LAYOUTS, ids=IDS)
def test_loaded_by_training(workshop, case, layout, tmp_path):
    step, config, parameters, state = write(workshop, case, layout, tmp_path / "out")
    assert legacy_load.check(step.parent, config, parameters, state, layout) > 20


@pytest.mark.parametrize("case,layout", [LAYOUTS[index] for index in (0, 1, 2, 3, 8, 9)], ids=[IDS[index] for index in (0, 1, 2, 3, 8, 9)])
def test_distributed_optimizer(workshop, case, layout, tmp_path):
    step, config, parameters, state = write(workshop, case, layout, tmp_path / "out", True, "--set", "use_distributed_optimizer=True")
    assert all((path.parent / "distrib_optim.pt").exists() for path in legacy_load.files(step).values())
    assert legacy_load.check(step.parent, config, parameters, state, layout, distributed=True) > 20


def test_weights_only(workshop, tmp_path):
    case, layout = LAYOUTS[0]
    step, config, parameters, _ = write(workshop, case, layout, tmp_path / "out", False)
    assert legacy_load.check(step.parent, config, parameters, None, layout) > 20


def test_mapped_into_memory(workshop, tmp_path):
    step, config, parameters, _ = write(workshop, "qwen3", env.Layout(2, 2), tmp_path / "out")
    for path in legacy_load.files(step).values():
        plain, mapped = legacy_load.read(path), legacy_load.read(path, mmap=True)
        assert list(plain["model"]) == list(mapped["model"])
        for name, tensor in plain["model"].items():
            assert not isinstance(tensor, torch.Tensor) or torch.equal(tensor, mapped["model"][name]), name
            assert not isinstance(tensor, torch.Tensor) or tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size(), name


def test_python_finds_every_sum_right(workshop, tmp_path):
    import zipfile
    step, *_ = write(workshop, "qwen2", env.Layout(2, 1), tmp_path / "out")
    for path in legacy_load.files(step).values():
        assert zipfile.ZipFile(path).testzip() is None


def test_the_same_bytes_again(workshop, tmp_path):
    first, *_ = write(workshop, "qwen3", env.Layout(2, 2), tmp_path / "a")
    second, *_ = write(workshop, "qwen3", env.Layout(2, 2), tmp_path / "b", True, "--threads", 1)
    for path in sorted(first.rglob("*.pt")):
        assert path.read_bytes() == (second / path.relative_to(first)).read_bytes(), path


def test_from_torch_dist(workshop, tmp_path):
    """Cut anew without a family, arguments and groups as they were; the run's distributed optimizer goes into distrib_optim.pt."""
    root, _, config, parameters, state = workshop.megatron("qwen3", env.Layout(2, 2))
    layout = env.Layout(1, 2)                                    # as many rows as Megatron itself makes for one rank
    tool.convert(root, tmp_path / "out", "--to", "megatron-legacy", "--pp", 2)
    step, = (tmp_path / "out").glob("iter_*")
    assert (step / "mp_rank_00_001" / "distrib_optim.pt").exists()
    assert legacy_load.check(step.parent, config, parameters, state, layout, distributed=True) > 20


def test_a_real_tree_of_virtual_stages_is_read(workshop, tmp_path):
    """`model0` and `model1` of each rank, and a distributed optimizer, by training's own save_checkpoint."""
    layout = env.Layout(1, 2, vpp=2, dp=2)
    _, config, parameters, state = workshop.full_state("qwen2")
    mcore_chunks.save(tmp_path / "root", config, parameters, state, layout, ckpt_format="torch", use_dist_ckpt=False, use_distributed_optimizer=True)
    assert (tmp_path / "root" / "iter_0000020" / "mp_rank_00_001" / "distrib_optim.pt").exists()
    tool.convert(tmp_path / "root", tmp_path / "full", "--to", "full-state", "--require-optim")
    assert_same(full_state.read(tmp_path / "full")[0], raw_of({f"param/{name}": tensor for name, tensor in parameters.items()} | state))
