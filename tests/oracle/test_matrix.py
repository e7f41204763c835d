"""Families x targets x layouts, each cell judged by its real consumer: Megatron-Core's dist_checkpointing, Megatron's own
load_checkpoint on legacy trees, FSDP2's DCP. Weights and Adam's state bit for bit.

A run takes CELLS of them (rotation.py); the line `matrix: seed ...` says which."""
import pytest

import tool

tool.require()

import dcp_ranks
import legacy_load
import mcore_chunks
import mcore_env as env
import models
import rotation
from reference import assert_same, raw_of

CELLS = 8
ADAM = ["--set", "lr=0.001", "--set", "min_lr=1e-05", "--set", "weight_decay=0.1"]
STRINGS = {4: "Et|t|t|tL", 5: "Et|tt|t|tL", 6: "Et|tt|tt|tL"}
MESHES = [(1,), (2,), (3,), (2, 2)]


def megatron_layouts(config):
    layers, heads, groups = (config[key] for key in ("num_hidden_layers", "num_attention_heads", "num_key_value_heads"))
    for tp in (1, 2, 4):
        if heads % tp or groups % tp or config["intermediate_size"] % tp:
            continue
        yield env.Layout(tp, 1)
        yield env.Layout(tp, 2, first=layers // 2 + 1)
        if layers % 2 == 0:
            yield env.Layout(tp, 2)
        if layers % 4 == 0:
            yield env.Layout(tp, 2, vpp=2)
        yield env.Layout(tp, 2, vpp=2, cells=STRINGS[layers])


def every_cell():
    cells = {}
    for case, config in models.CONFIGS.items():
        for layout in megatron_layouts(config):
            for target in ("megatron", "megatron-legacy"):
                cells[f"{case}-{target}-{layout}"] = (case, target, layout)
        for mesh in MESHES:
            cells[f"{case}-dcp-{'x'.join(map(str, mesh))}"] = (case, "dcp", mesh)
    return cells


EVERY = every_cell()
SEED = rotation.seed()
NAMES = rotation.chosen(EVERY, SEED, CELLS)


def test_the_matrix_is_whole_and_its_choice_can_be_repeated(capsys):
    with capsys.disabled():
        print(f"\nmatrix: seed {SEED}, {len(NAMES)} of {len(EVERY)} cells (CROSSDOCK_MATRIX=all takes all, =SEED repeats)", flush=True)
    targets = {target for _, target, _ in EVERY.values()}
    assert targets == {"megatron", "megatron-legacy", "dcp"} and {case for case, _, _ in EVERY.values()} == set(models.CONFIGS)
    assert rotation.chosen(EVERY, "a", CELLS) == rotation.chosen(EVERY, "a", CELLS) != rotation.chosen(EVERY, "b", CELLS)
    assert set().union(*(rotation.chosen(EVERY, str(word), CELLS) for word in range(400))) == set(EVERY)      # rotation reaches every cell


def loaded_by_fsdp(directory, case, mesh, parameters, state):
    size = 1
    for axis in mesh:
        size *= axis
    found = env.run_ranks(size, dcp_ranks.load, str(directory), case, mesh)[0][0]
    found = {name: tensor for name, tensor in found.items() if name.split("/")[0] in ("param", "optim")}
    if models.CONFIGS[case]["tie_word_embeddings"]:
        found = {name: tensor for name, tensor in found.items() if not name.endswith("/lm_head.weight")}
    moments = {name: tensor for name, tensor in state.items() if name.startswith(("optim/adam_mu/", "optim/adam_nu/"))}
    assert_same(raw_of(found), raw_of({f"param/{name}": tensor.float() for name, tensor in parameters.items()} | moments))


@pytest.mark.parametrize("name", NAMES)
def test_a_cell(workshop, name, tmp_path):
    case, target, layout = EVERY[name]
    source, config, parameters, state = workshop.full_state(case)
    words = ["--to", target, "--hf-template", workshop.hf(case)[0]]
    if target == "dcp":
        tool.convert(source, tmp_path / "out", *words, "--dtype", "fp32", "--set", "lr=0.001", "--set", "weight_decay=0.1")
        loaded_by_fsdp(tmp_path / "out", case, layout, parameters, state)
        return
    tool.convert(source, tmp_path / "out", *words, *ADAM, "--set", "seq_length=64", "--iteration", 20, *tool.layout_words(layout))
    if target == "megatron":
        assert mcore_chunks.check(tool.step_of(tmp_path / "out"), config, parameters, state, layout)
    else:
        assert legacy_load.check(tmp_path / "out", config, parameters, state, layout) > 20
