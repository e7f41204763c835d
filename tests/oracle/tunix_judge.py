"""Tunix 0.1.7 and MaxText 0.2.5 themselves, on the CPU: trainers' checkpoints, and what each finds in one. Runs in the environment `maxtext`
(scripts/setup_test_env.sh maxtext), one process for many steps:

    python tunix_judge.py JOB.json RESULT.json

JOB: a list of steps, done in order. A case is that of tests/golden/tunix/generate.py by name, or its fields.
    {"name", "write": CASE, "to": directory, "blank": bool} the checkpoint, or that of a trainer that has just begun -> its rows
    {"name", "pretrain": CASE, "to": directory}             the same values as MaxText's own training saves them
    {"call": [program, words], "name"}                      what is to be done between -> {"code", "out", "err"}
    {"name", "state": STEP/items, "case": CASE}             real MaxText's full state -> {"found", "not_found"}, of maxtext_judge
    {"name", "restore": root, "step", "case": CASE}         real Tunix into a trainer that has just begun -> {"step", "metadata", "wrong"}
{"one_count": true} first: all counters hold one number, as in a run. RESULT: {name: result}, {"error": text} where a library refuses.
"""
import json
import pathlib
import subprocess
import sys
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden/tunix"))

import generate  # sets jax's environment

import jax
import maxtext_judge


def case_of(word):
    if isinstance(word, str):
        return generate.CASES[word]
    fields = {key: tuple(tuple(x) if isinstance(x, list) else x for x in value) if isinstance(value, list) else value for key, value in word.items()}
    return generate.Case(**fields)


def do(step):
    if "write" in step:
        return generate.write(case_of(step["write"]), step["to"], blank=step.get("blank", False))
    if "pretrain" in step:
        return generate.write_pretraining(case_of(step["pretrain"]), step["to"])
    if "call" in step:
        done = subprocess.run(step["call"], capture_output=True, text=True, check=False)
        return {"code": done.returncode, "out": done.stdout, "err": done.stderr}
    case = case_of(step["case"])
    if "restore" in step:
        return generate.restored(case, step["restore"], step.get("step"))
    job = generate.job_of(case) | {"items": step["state"], "state": generate.optimizer_type(case)}
    return maxtext_judge.state(job, generate.rename_mlp if case.owns_base else lambda model: None)


def main(job_file, result_file):
    jax.config.update("jax_default_prng_impl", "unsafe_rbg")
    results = {}
    for step in json.loads(pathlib.Path(job_file).read_text()):
        if step.get("one_count"):
            generate.COUNTS.update(dict.fromkeys(generate.COUNTS, 20))
            continue
        try:
            results[step["name"]] = do(step)
        except Exception:  # a refusal is a result
            results[step["name"]] = {"error": traceback.format_exc()[-3000:]}
        pathlib.Path(result_file).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
