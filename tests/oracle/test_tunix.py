"""Tunix' checkpoints through the tool before MaxText 0.2.5 and Tunix 0.1.7 themselves: each trainer's, as MaxText's full state loads it, and back as
Tunix restores it; and every trainer's checkpoint read by every other. One process for all (tunix_judge.py) in the environment `maxtext`."""
import itertools
import json
import pathlib
import subprocess

import pytest

import tool

tool.require()

import rotation
import test_maxtext

python = test_maxtext.python  # the fixture
ROOT = pathlib.Path(__file__).resolve().parents[2]
TREES = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "tests/golden/tunix/trees").glob("*.json"))}
NAMES = {"float32": "F32", "int32": "I32", "uint32": "U32"}
STEP = 20

# Four cases a run. MaxText's trainer goes on from those that have all weights and the optimizer's state.
LOADED = [name for name in TREES if name not in ("lora", "weights_only", "old_item")]
FAMILIES = {"qwen3": ["qwen3-0.6b", []], "qwen2": ["qwen2.5-7b", []],
            "gemma3": ["gemma3-4b", [["use_multimodal", False], ["base_num_decoder_layers", 8], ["base_emb_dim", 16]]]}
SHELL = ["opt_state", "count"]
TRAINERS = {
    "sft": {},
    "dpo": {"optimizer": "clip", "levels": ["1"], "schedule": ["opt_state", "1", "2", "count"], "wrapped": True},
    "rl": {"optimizer": "rl", "levels": ["inner_state", "1"], "schedule": SHELL, "wrapped": True, "roots": ["actor"]},
    "distillation": {"optimizer": "distillation", "levels": ["inner_state", "1"], "schedule": SHELL, "form": "v1"},
}
FORMS = [f"{family}-{form}" for family in FAMILIES for form in ("scanned", "unscanned")]
PAIRS = [f"{form}:{a}-{b}" for form in FORMS for a, b in itertools.permutations([*TRAINERS, "pretrain"], 2)]
WORD = rotation.seed()
CHOSEN = rotation.chosen(set(TREES), WORD, 4)
CHOSEN_FORMS = rotation.chosen(set(FORMS), WORD, 1)
CHOSEN_PAIRS = rotation.chosen({pair for pair in PAIRS if pair.split(":")[0] in CHOSEN_FORMS}, WORD, 4)


def _convert(name, *words):
    return {"name": name, "call": [tool.BINARY, "convert", *map(str, words)]}


def _case_jobs(name, work):
    root = work / name / TREES[name]["roots"][0]
    state = {"name": f"{name} state", "state": str(work / f"{name}-maxtext/{STEP}/items"), "case": name}
    return [
        {"name": f"{name} write", "write": name, "to": str(work / name)},
        _convert(f"{name} there", root, work / f"{name}-maxtext", "--to", "maxtext"),
        *([state] if name in LOADED else []),
        _convert(f"{name} again", work / f"{name}-maxtext", work / f"{name}-back", "--to", "tunix"),
        {"name": f"{name} restore", "restore": str(work / f"{name}-back"), "case": name},
    ]


def _case(form, trainer):
    family, scan = form.split("-")
    return {"why": trainer, "family": FAMILIES[family], "scan": scan == "scanned", **TRAINERS.get(trainer, {})}


def _place(work, form, trainer):
    return work / f"{form}-{trainer}" / ("actor" if trainer == "rl" else "")


def _pair_jobs(pairs, work):
    jobs = [{"one_count": True}]
    ends = {(form, *pair.split("-")) for form, pair in (pair.split(":") for pair in pairs)}
    for form, writer in sorted({(form, writer) for form, writer, _ in ends}):
        if writer == "pretrain":
            jobs.append({"name": f"{form} pretrain", "pretrain": _case(form, writer), "to": str(work / f"{form}-pretrain")})
        else:
            jobs.append({"name": f"{form} {writer} rows", "write": _case(form, writer), "to": str(work / f"{form}-{writer}")})
    for form, reader in sorted({(form, reader) for form, _, reader in ends if reader != "pretrain"}):
        jobs.append({"name": f"{form} {reader} blank", "write": _case(form, reader), "to": str(work / f"{form}-{reader}-blank"), "blank": True})
    for pair in pairs:
        form, ends = pair.split(":")
        writer, reader = ends.split("-")
        source, target = _place(work, form, writer), work / pair.replace(":", "-")
        if reader == "pretrain":
            jobs += [_convert(f"{pair} there", source, target, "--to", "maxtext", *([] if form.endswith("-scanned") else ["--no-scan-layers"])),
                     {"name": f"{pair} state", "state": str(target / f"{STEP}/items"), "case": _case(form, reader)}]
        else:
            blank = work / f"{form}-{reader}-blank" / ("actor" if reader == "rl" else "")
            jobs += [_convert(f"{pair} there", source, target, "--to", "tunix", "--tunix-template", blank),
                     {"name": f"{pair} restore", "restore": str(target), "case": _case(form, reader)}]
    return jobs


@pytest.fixture(scope="module")
def verdict(python, tmp_path_factory):
    """Everything at once: MaxText takes 20 s to start."""
    work = tmp_path_factory.mktemp("tunix")
    jobs = [job for name in CHOSEN for job in _case_jobs(name, work)] + _pair_jobs(CHOSEN_PAIRS, work)
    (work / "jobs.json").write_text(json.dumps(jobs))
    done = subprocess.run([python, ROOT / "tests/oracle/tunix_judge.py", work / "jobs.json", work / "result.json"], capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((work / "result.json").read_text())


def _went(result):
    assert "error" not in result, result["error"]
    assert result.get("code", 0) == 0, result
    return result


def _check_state(result, rows):
    """Every leaf that the rows name is there, bit for bit, and nothing is left to be made anew but random streams."""
    _went(result)
    assert not [name for name in result["not_found"] if not {"rngs", "dropout"} & set(name.split("."))], result["not_found"][:5]
    wanted = {row[6]: [row[3], row[4], row[5]] for row in rows if row[6] and row[3]}
    wanted["step"] = ["I32", *wanted["step"][1:]]
    if "opt_state.2.count" in wanted:
        wanted["opt_state.2.count"] = ["I32", *wanted["opt_state.2.count"][1:]]
    found = {name: [NAMES[value[0]], *value[1:]] for name, value in result["found"].items() if not name.startswith("nnx_aux")}
    assert found.keys() == wanted.keys(), sorted(found.keys() ^ wanted.keys())[:5]
    assert not [name for name in wanted if found[name] != wanted[name]], [(name, found[name], wanted[name]) for name in wanted if found[name] != wanted[name]][:3]
    assert sum(".mu.params." in name or ".mu.decoder" in name for name in found) > 8


@pytest.mark.parametrize("name", [name for name in CHOSEN if name in LOADED])
def test_maxtext_goes_on_from_a_trainers_checkpoint(verdict, name):
    _went(verdict[f"{name} there"])
    _check_state(verdict[f"{name} state"], TREES[name]["rows"])


@pytest.mark.parametrize("name", CHOSEN)
def test_and_the_way_back_restores(verdict, name):
    _went(verdict[f"{name} again"])
    result = _went(verdict[f"{name} restore"])
    assert result["step"] == STEP
    assert result["wrong"] == []
    assert TREES[name]["custom_metadata"].items() <= result["metadata"].items()


@pytest.mark.parametrize("pair", CHOSEN_PAIRS)
def test_every_trainer_reads_every_others(verdict, pair):
    form, ends = pair.split(":")
    writer, reader = ends.split("-")
    _went(verdict[f"{pair} there"])
    if reader == "pretrain":
        _check_state(verdict[f"{pair} state"], verdict[f"{form} {writer} rows"])
    else:
        result = _went(verdict[f"{pair} restore"])
        assert result["step"] == STEP
        assert result["wrong"] == []
