"""Real MaxText models as real trainers hold them (tests/golden/tunix/generate.py): what the manager writes of each, what MaxText's own load finds in
it, and that a trainer that has just begun gets every value back, from its own kind's step and from others'."""
import hashlib
import json
import pathlib
import sys

import pytest

import tool

tool.require()
crossdock = tool.package()
GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "tunix"
sys.path.append(str(GOLDEN))

import generate  # first: it sets the environment that jax reads
import jax
import numpy as np
import orbax.checkpoint as ocp
from flax import nnx

import maxtext_judge
import rotation
import small
from crossdock import post_training

# One of each kind of level; RL's, which have most of them, and another a run, CROSSDOCK_MATRIX=all takes all: a model takes seconds to be made.
ALL = {"dpo_clip", "rl", "accumulated", "muon_clip", "adam_pax", "lora", "module_base_wrapped"}
CASES = sorted({"rl", *rotation.pick(ALL - {"rl"}, "post-training", 1)})
# What of them the real MaxText loads.
JUDGED = {name: optimizer for name, optimizer in {"rl": "adamw", "dpo_clip": "adamw", "muon_clip": "muon", "adam_pax": "adam_pax"}.items() if name in CASES}


def manager(root):
    return post_training.MaxTextLayoutCheckpointManager(root, ocp.CheckpointManagerOptions(save_interval_steps=1))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """name -> the root of what the manager wrote of a case's trainer. Beside it `tunix`: what Tunix's own manager wrote of the same one."""
    roots = {}

    def save(name):
        if name not in roots:
            case, root = generate.CASES[name], tmp_path_factory.mktemp(name)
            _, mesh, model, optimizer = generate.trainer(case)
            with mesh, manager(root / "maxtext") as keeper, generate.manager_of(case, root / "tunix") as own:
                for one in (keeper, own):
                    assert one.save(20, model, optimizer, save_only_lora_params=case.lora, force=True, custom_metadata=dict(case.metadata))
            roots[name] = root / "maxtext"
        return roots[name]
    return save


def digest(array):
    return [str(array.dtype), list(array.shape), hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()]


@pytest.mark.parametrize("name", CASES)
def test_everything_is_where_maxtext_has_it(saved, name):
    """trees/CASE.json knows, of what Tunix itself wrote of this trainer, the name and the digest of each leaf."""
    case, said = generate.CASES[name], json.loads((GOLDEN / "trees" / f"{name}.json").read_text())
    arrays, kinds = small.stored(saved(name) / "20" / "items")
    spelled = {"F32": "float32", "I32": "int32", "U32": "uint32"}
    expected = {row[6]: [spelled[row[3]], row[4], row[5]] for row in said["rows"] if row[6] and row[3]}
    expected["step"] = digest(np.int32(generate.COUNTS["gradient_step" if name == "accumulated" else "step"]))     # uint32 with Tunix
    assert {key: digest(value) for key, value in arrays.items()} == expected
    if case.optimizer != "adam_pax" and "inner_states" not in str(sorted(arrays)):
        assert kinds["opt_state", 1] == "None"
    metadata = post_training.checkpoint_metadata(saved(name) / "20" / "items")
    assert metadata["scan_layers"] is case.scan and dict(case.metadata).items() <= metadata.items()


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_the_offline_conversion_writes(saved, tmp_path, name):
    live = saved(name) / "20"
    tool.convert(saved(name).parent / "tunix", tmp_path / "offline", "--to", "maxtext")
    offline = tmp_path / "offline" / "20"
    (arrays, kinds), (others, otherwise) = small.stored(live / "items"), small.stored(offline / "items")
    small.same(arrays, others)
    assert sorted(map(str, kinds)) == sorted(map(str, otherwise))
    assert {path: kind for path, kind in kinds.items() if kind in ("None", "Dict")} == {path: kind for path, kind in otherwise.items() if kind in ("None", "Dict")}
    said = post_training.checkpoint_metadata(live)
    assert said.pop("lora", None) is None or generate.CASES[name].lora      # of the model's configuration, which no file of Tunix's holds
    assert said == post_training.checkpoint_metadata(offline)


@pytest.mark.parametrize("name", sorted(JUDGED))
def test_maxtext_loads_it_whole(saved, name):
    verdict = maxtext_judge.state(generate.job_of(generate.CASES[name]) | {"items": str(saved(name) / "20" / "items"), "state": JUDGED[name]})
    assert verdict["found"] and all("rngs" in missing or "dropout" in missing for missing in verdict["not_found"]), verdict["not_found"]
    arrays, _ = small.stored(saved(name) / "20" / "items")
    for key, found in verdict["found"].items():
        assert found == digest(arrays[key]), key


def restored(name, root, step=None):
    """What is wrong in a trainer that has just begun after the manager restored it; the step; the metadata."""
    case = generate.CASES[name]
    _, mesh, model, optimizer = generate.trainer(case, filled=False)
    with mesh, manager(root) as keeper:
        at, metadata = keeper.maybe_restore(model, optimizer, step=step, restore_only_lora_params=case.lora)
    wrong = []
    for item, state in generate.states_of(case, model, optimizer).items():
        wanted = dict(jax.tree_util.tree_flatten_with_path(generate.fill(case, item, state))[0])
        for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
            plain = [jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in (leaf, wanted[path])]
            found, expected = (np.asarray(x) for x in plain)
            if found.dtype != expected.dtype or found.tobytes() != expected.tobytes():
                wrong.append(".".join((item,) + generate.keys_of(path)))
    return wrong, at, metadata


@pytest.mark.parametrize("name", CASES)
def test_the_trainer_has_every_value_again(saved, name):
    wrong, at, metadata = restored(name, saved(name))
    # Gradients that are gathered between two updates are zero after one; nothing keeps them.
    assert [one for one in wrong if "acc_grads" not in one] == []
    assert at == 20 and dict(generate.CASES[name].metadata).items() <= metadata.items()


@pytest.mark.parametrize("name, root", [("rl", "actor"), ("distillation", ""), ("old_item", "")])
def test_steps_of_tunix_itself_are_restored(name, root):
    wrong, at, metadata = restored(name, GOLDEN / "checkpoints" / name / root)
    assert wrong == [] and at == 20 and dict(generate.CASES[name].metadata).items() <= metadata.items()


# A trainer reads what another kind wrote: what both have is as it was saved, what one alone has is its own or counts alike.
OTHERS = [("sft", "rl", ("count",)), ("two_hyperparameters", "pre-training", ("count", "hyperparams"))]


@pytest.mark.parametrize("reader, writer, own", OTHERS)
def test_a_trainer_reads_anothers_step(saved, tmp_path, reader, writer, own):
    if writer == "pre-training":
        generate.write_pretraining(generate.CASES["sft"], tmp_path)
    wrong, at, _ = restored(reader, tmp_path if writer == "pre-training" else saved(writer))
    assert at == 20
    assert [one for one in wrong if not any(part in one for part in own)] == []
    assert any("count" in one for one in wrong)   # the numbers of the two are different, so that it would be seen


def test_a_step_of_another_model_is_refused_and_changes_nothing(saved):
    case = generate.CASES["dpo_clip"]           # unscanned
    _, mesh, model, optimizer = generate.trainer(case, filled=False)
    before = {**small.values(model), **small.values(optimizer)}
    with mesh, manager(saved("rl")) as keeper, pytest.raises(crossdock.IncompleteError, match=r"step 20 lacks `base\.decoder\.layers_0\..* of the model\nhint: "):
        keeper.maybe_restore(model, optimizer)
    small.same({**small.values(model), **small.values(optimizer)}, before)
