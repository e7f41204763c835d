"""Real Megatron-Core ranks on gloo load a Hugging Face directory through crossdock.megatron.load_hf; judge: a second model of every
rank, filled piece by piece from the reference through Megatron-Core's own sharding. Ranks by Megatron-Core's own generator."""
import itertools
import math

import tool

crossdock = tool.package()

import pytest
import torch

import mcore_env as env
import mcore_load
import mcore_write
import models
from megatron.core.parallel_state import RankGenerator


def build(config, layout, local, dtype):
    if layout.vpp:
        return env.build_chunks(config, layout, dtype)
    return [env.build_model(config, layout, dtype, local=local, own_names=local)]


def load_rank(rank, path, config, parameters, layout, local, dtype):
    """(problems, tensors compared, bytes read, bytes held) of one rank: what load_hf fills against what the reference sets."""
    import crossdock.megatron
    env.initialize(layout)
    chunks, reference = build(config, layout, local, dtype), build(config, layout, local, dtype)
    with torch.no_grad():
        for chunk in chunks:
            for parameter in chunk.parameters():
                parameter.fill_(3.0)
    for chunk in reference:
        mcore_write.fill_model(chunk, config, parameters, layout, pad=0.0)
    held, expected = crossdock.megatron.tensors_of(chunks), crossdock.megatron.tensors_of(reference)
    report = crossdock.megatron.load_hf(chunks if layout.vpp else chunks[0], path, threads=1, cast=dtype != torch.bfloat16)
    problems = [] if held.keys() == expected.keys() else ["other names"]
    found, place = crossdock.megatron.layout_of(chunks)
    found.world_size = layout.world
    if found.place(rank) != place:
        problems.append(f"{found} puts rank {rank} at {found.place(rank)}, parallel_state at {place}")
    for name, tensor in held.items():   # taken before: the parameters themselves are filled
        mcore_load._compare(problems, name, tensor, expected[name])
    return problems, len(held), report.bytes_read, sum(tensor.numel() * tensor.element_size() for tensor in held.values())


def check(workshop, case, layout, local=False, dtype=torch.bfloat16):
    directory, config, tensors = workshop.hf(case)
    config, parameters = models.parameters(case)
    total = 0
    for rank, (problems, count, read, held) in enumerate(env.run_ranks(layout.world, load_rank, directory, config, parameters, layout, local, dtype)):
        assert not problems, f"{case} {layout}, rank {rank}: " + "; ".join(problems[:6])
        assert count, f"{case} {layout}, rank {rank}: nothing was compared"
        if dtype == torch.bfloat16:
            assert read <= 1.02 * held, f"{case} {layout}, rank {rank}: {read} bytes were read for {held}"
        total += count
    return total


CELLS = [
    ("qwen3", env.Layout(tp=2, pp=2), False),
    ("qwen3", env.Layout(tp=2), True),
    ("qwen3", env.Layout(pp=2, vpp=2), False),
    ("qwen3", env.Layout(tp=2, pp=2, vpp=2, cells="Et||t*2|tL"), False),
    ("qwen3_moe", env.Layout(dp=2, ep=2), True),
    ("qwen3_moe", env.Layout(tp=2, pp=2, ep=2, etp=1, first=3), False),
]


@pytest.mark.parametrize("case,layout,local", CELLS, ids=[f"{case}-{layout}{'-local' if local else ''}" for case, layout, local in CELLS])
def test_every_rank_holds_its_own_part(workshop, case, layout, local):
    check(workshop, case, layout, local)


def test_values_are_cast_to_what_the_model_holds(workshop):
    check(workshop, "qwen3", env.Layout(tp=2), dtype=torch.float32)


def test_what_does_not_fit_the_model_is_told_before_anything_is_touched(workshop):
    directory, config, _ = workshop.hf("qwen3")
    env.run_ranks(1, _refusals, directory, config)


def _refusals(rank, directory, config):
    import crossdock.megatron
    layout = env.Layout()
    env.initialize(layout)
    model = env.build_model(config | {"num_hidden_layers": config["num_hidden_layers"] + 1}, layout)
    before = {name: tensor.clone() for name, tensor in crossdock.megatron.tensors_of([model]).items()}
    with pytest.raises(crossdock.UsageError, match=f"decoder.layers.{config['num_hidden_layers']}"):
        crossdock.megatron.load_hf(model, directory, threads=1)
    assert all(torch.equal(before[name], tensor) for name, tensor in crossdock.megatron.tensors_of([model]).items())
    model = env.build_model(config, layout, torch.float32)
    with pytest.raises(crossdock.UsageError, match="F32 where BF16 is expected"):
        crossdock.megatron.load_hf(model, directory, threads=1, cast=False)


def test_ranks_are_counted_as_megatron_counts_them():
    """Every combination of sizes up to 64 ranks, against the generator that initialize_model_parallel makes its groups with."""
    tried = 0
    for tp, cp, pp, ep, etp, copies in itertools.product((1, 2, 3, 4), (1, 2), (1, 2, 3), (1, 2, 4), (1, 2, 4), (1, 2)):
        stage = math.lcm(tp * cp, ep * etp) * copies
        world = stage * pp
        if world > 64:
            continue
        dense = RankGenerator(tp=tp, ep=1, dp=stage // (tp * cp), pp=pp, cp=cp, order="tp-cp-ep-dp-pp")
        experts = RankGenerator(tp=etp, ep=ep, dp=stage // (ep * etp), pp=pp, cp=1, order="tp-cp-ep-dp-pp")
        coordinate = {name: {rank: group.index(rank) for group in generator.get_ranks(token) for rank in group}
                      for name, generator, token in (("tensor", dense, "tp"), ("stage", dense, "pp"), ("expert", experts, "ep"), ("within", experts, "tp"))}
        layout = crossdock.Layout(tp=tp, pp=pp, ep=ep, etp=etp, cp=cp, world_size=world)
        for rank in range(world):
            assert layout.place(rank) == tuple(coordinate[name][rank] for name in ("tensor", "stage", "expert", "within")), f"{layout}, rank {rank}"
        tried += 1
    assert tried > 100


def test_torch_tensors_of_every_kind(workshop):
    directory, config, _ = workshop.hf("qwen3")
    plan = crossdock.load_plan(directory)
    name, info = next((name, info) for name, info in plan.tensors.items() if len(info.shape) == 2)
    tensors = {other: torch.empty(one.shape, dtype=torch.bfloat16) for other, one in plan.tensors.items()}
    plan.read_into(tensors, threads=1)
    expected = tensors[name]
    from crossdock import megatron
    staged = {other: torch.empty_like(tensor) for other, tensor in tensors.items()}   # as tensors of a GPU are filled
    report = megatron._over_pinned(plan, staged, {"threads": 1}, 10_000)
    assert all(torch.equal(staged[other], tensor) for other, tensor in tensors.items()) and report.tensors == len(tensors)
    with pytest.raises(crossdock.UsageError, match="differ in name or shape"):
        megatron._over_pinned(plan, staged | {"other": staged[name]}, {"threads": 1}, 10_000)
    parameter = torch.nn.Parameter(torch.zeros(info.shape, dtype=torch.bfloat16))
    plan.read_into({name: parameter}, strict=False)
    assert torch.equal(parameter, expected)
    version = torch.zeros(info.shape, dtype=torch.float16)
    with pytest.raises(crossdock.UsageError, match="F16 where BF16 is expected"):
        plan.read_into({name: version}, strict=False)
    plan.read_into({name: version}, strict=False, cast=True)
    assert torch.equal(version, expected.to(torch.float16))
    turned = torch.zeros(tuple(reversed(info.shape)), dtype=torch.bfloat16).t()
    with pytest.raises(crossdock.UsageError, match="without gaps"):
        plan.read_into({name: turned}, strict=False)
    with pytest.raises(crossdock.UsageError, match="lies on meta"):
        plan.read_into({name: torch.empty(info.shape, dtype=torch.bfloat16, device="meta")}, strict=False)
    with pytest.raises(crossdock.UsageError, match="F8_E4M3 where BF16 is expected"):
        plan.read_into({name: torch.empty(info.shape, dtype=torch.float8_e4m3fn)}, strict=False)


def mtp_rank(rank, directory, config, parameters, own, layout):
    """The layer of prediction against the last layer of a model that is one deeper, of the same values."""
    import crossdock.megatron
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_mtp_block_spec
    env.initialize(layout)
    plain = env.GPTModel

    def predicting(**how):
        how["config"].mtp_num_layers = 1
        return plain(**how, mtp_block_spec=get_gpt_mtp_block_spec(how["config"], how["transformer_layer_spec"], use_transformer_engine=True))

    env.GPTModel = predicting
    model = env.build_model(config, layout)
    env.GPTModel = plain
    layers = config["num_hidden_layers"]
    deeper = env.build_model(config | {"num_hidden_layers": layers + 1}, layout)
    mcore_write.fill_model(deeper, config | {"num_hidden_layers": layers + 1}, parameters, layout, pad=0.0)
    expected = crossdock.megatron.tensors_of([deeper])
    rows = own["eh_proj"].shape[0] // layout.tp
    expected |= {f"mtp.layers.0.{name}.weight": tensor for name, tensor in own.items()}
    expected["mtp.layers.0.eh_proj.weight"] = own["eh_proj"][rank % layout.tp * rows:][:rows]
    held = crossdock.megatron.tensors_of([model])
    crossdock.megatron.load_hf(model, directory, threads=1)
    problems, found = [], 0
    for name, tensor in held.items():
        found += name.startswith("mtp.")
        mcore_load._compare(problems, name, tensor, expected[name.replace("mtp.layers.0.mtp_model_layer.", f"decoder.layers.{layers}.")])
    return problems, found


def test_layers_of_multi_token_prediction(tmp_path):
    import json
    import models_experts
    import safetensors.torch
    config, _ = models.parameters("deepseek_v3")
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    parameters = {name: models.fill(f"mtp:{name}", shape, torch.float32 if name.endswith("e_score_correction_bias") else torch.bfloat16)
                  for name, shape in models_experts.shapes(config | {"num_hidden_layers": layers + 1}).items()}
    own = {name: models.fill(f"mtp:{name}", shape, torch.bfloat16)
           for name, shape in (("enorm", (hidden,)), ("hnorm", (hidden,)), ("eh_proj", (hidden, 2 * hidden)), ("final_layernorm", (hidden,)))}
    stored = {f"model.layers.{layers}.{'shared_head.norm' if name == 'final_layernorm' else name}.weight": tensor for name, tensor in own.items()}
    safetensors.torch.save_file(parameters | stored, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1, "torch_dtype": "bfloat16"}))
    layout = env.Layout(tp=2, ep=2, etp=1)
    for rank, (problems, found) in enumerate(env.run_ranks(layout.world, mtp_rank, tmp_path, config, parameters, own, layout)):
        assert not problems, f"rank {rank}: " + "; ".join(problems[:6])
        assert found > 10, f"rank {rank}: {found} tensors of the layer"
