"""Virtual stages, layout strings and counted ends: Megatron-Core loads what the tool wrote for a layout, and the tool reads
what a run of that layout saved; weights and Adam's state bit for bit."""
import json
import shlex

import pytest

import tool

tool.require()

import full_state
import mcore_chunks
import mcore_env as env
import mcore_load
from reference import assert_same, raw_of

LAYOUTS = {
    "vpp2": ("qwen3", env.Layout(1, 2, vpp=2)),
    "tp2-vpp2": ("qwen2", env.Layout(2, 2, vpp=2)),
    "vpp2-last": ("qwen2_tied", env.Layout(1, 2, last=2, vpp=2)),
    "string": ("qwen3", env.Layout(1, 2, vpp=2, cells="Et||t*2|tL")),
    "string-long": ("llama3_gqa", env.Layout(2, 2, vpp=3, cells="E|(t|)*4t,L")),
    "counted-ends": ("qwen2_tied", env.Layout(1, 2, embedding=True, loss=True)),
    "counted-vpp2": ("qwen2_tied", env.Layout(1, 2, vpp=2, embedding=True, loss=True)),
    "counted-loss": ("qwen3_tied", env.Layout(1, 2, loss=True)),
}
HYPER = ["--set", "lr=1e-3", "--set", "min_lr=1e-5", "--set", "weight_decay=0.1"]


@pytest.mark.parametrize("name", LAYOUTS)
def test_megatron_loads_what_was_written_for_a_layout(workshop, name, tmp_path):
    case, layout = LAYOUTS[name]
    source, config, parameters, state = workshop.full_state(case)
    text = tool.convert(source, tmp_path / "m", "--to", "megatron", *tool.layout_words(layout), *HYPER, "--hf-template", workshop.hf(case)[0])
    step = tool.step_of(tmp_path / "m")
    assert mcore_chunks.check(step, config, parameters, state, layout)
    # The printed line asks for the same division, in Megatron's own words.
    line = next(line for line in text.splitlines() if line.strip().startswith("--load "))
    args = mcore_load.command_line(shlex.split(line))
    assert (args.pipeline_model_parallel_layout, args.decoder_last_pipeline_num_layers) == (layout.cells, layout.last)
    assert (args.account_for_embedding_in_pipeline_split, args.account_for_loss_in_pipeline_split) == (layout.embedding, layout.loss)
    assert args.num_virtual_stages_per_pipeline_rank == (None if layout.cells else layout.vpp)
    assert (args.tensor_model_parallel_size, args.pipeline_model_parallel_size) == (layout.tp, layout.pp)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_run_of_a_layout_is_read(workshop, name, tmp_path):
    case, layout = LAYOUTS[name]
    _, config, parameters, state = workshop.full_state(case)
    held = mcore_chunks.save(tmp_path / "m", config, parameters, state, layout)
    tool.convert(tmp_path / "m", tmp_path / "full", "--to", "full-state", "--hf-template", workshop.hf(case)[0])
    assert_same(full_state.read(tmp_path / "full")[0], raw_of({f"param/{name}": tensor for name, tensor in parameters.items()} | state))
    said = json.loads(tool.run("inspect", tmp_path / "m", "--json"))["layout"]
    assert (said["tp"], said["pp"], said.get("vpp"), said.get("pipeline_layout")) == (layout.tp, layout.pp, layout.vpp, layout.cells)
    # The stage table of a plan is what the run's chunks held.
    plan = json.loads(tool.run("plan", tmp_path / "m", tmp_path / "n", "--to", "megatron", *tool.layout_words(layout), "--json"))
    assert len(plan["stages"]) == layout.pp * (layout.vpp or 1)
    for row in plan["stages"]:
        names = held[row["stage"] * layout.tp][row["chunk"]]
        layers = {name.split(".")[2] for name in names if name.startswith("decoder.layers.")}
        assert len(layers) == len(row["layers"]), row
        assert any(name.startswith("embedding.") for name in names) == row["embedding"], row
        assert ("decoder.final_layernorm.weight" in names) == row["head"], row
    # And to another layout of the same kind, with the optimizer.
    target = env.Layout(1, 1)
    tool.convert(tmp_path / "m", tmp_path / "r", "--to", "megatron", *tool.layout_words(target))
    mcore_load.check(tool.step_of(tmp_path / "r"), config, parameters, state, [target])


@pytest.mark.parametrize("distributed", [False, True], ids=["plain", "distributed"])
@pytest.mark.parametrize("name", ["tp2-vpp2", "string", "counted-vpp2"])
def test_megatron_loads_a_legacy_tree_of_a_layout(workshop, name, distributed, tmp_path):
    case, layout = LAYOUTS[name]
    source, config, parameters, state = workshop.full_state(case)
    tool.convert(source, tmp_path / "m", "--to", "megatron-legacy", "--iteration", 20, *tool.layout_words(layout), *HYPER, "--hf-template", workshop.hf(case)[0],
                 "--set", "seq_length=64", *(["--set", "use_distributed_optimizer=True"] if distributed else []))
    assert mcore_chunks.check_legacy(tmp_path / "m", config, parameters, state, layout, distributed)
