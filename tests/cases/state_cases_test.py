#!/usr/bin/env python3
"""Cases about optimizer state and counters: each test carries the number of its case.

Needs only Python and CROSSDOCK, the program under test. Cases that need the real libraries are in tests/oracle."""
import json
import os
import struct
import sys

sys.path.insert(0, os.path.dirname(__file__))
import checkpoint  # noqa: E402
from case import Case, main  # noqa: E402

SETTINGS = ["--set", "lr=1e-3", "--set", "min_lr=1e-5", "--set", "weight_decay=0.1", "--set", "muon_momentum=0.95"]
COUNTERS = {"step": 454500, "muon_count": 454212, "adam_count": 454000}
SAMPLES = 116352000


def is_muons(name, shape):
    return len(shape) == 2 and "embed" not in name and "lm_head" not in name


def widened(data, add):
    """bf16 values as float32, each moved by `add` so that no two slots are alike."""
    values = struct.unpack(f"<{len(data) // 2}H", data)
    return b"".join(struct.pack("<f", struct.unpack("<f", struct.pack("<I", value << 16))[0] + add) for value in values)


def state_of(items, masters=True):
    """Matrices with Muon's momentum, the rest with Adam's moments."""
    made = {}
    for name, (_, shape, data) in items.items():
        slots = [("muon_mu", 0.25)] if is_muons(name, shape) else [("adam_mu", 0.5), ("adam_nu", 0.75)]
        for slot, add in slots + [("master", 0.125)] * masters:
            made[f"optim/{slot}/{name}"] = ("F32", shape, widened(data, add))
    return made


class State(Case):
    def full_state(self, folder="full", counters=COUNTERS, drop=(), form="crossdock-full-state-v1", **metadata):
        """Writes a full state of model D with Muon. Returns its tensors by key, the counters left out."""
        items = checkpoint.tensors(checkpoint.CONFIG)
        tensors = {f"param/{name}": item for name, item in items.items()} | state_of(items, form.startswith("crossdock"))
        for name in drop:
            del tensors[name]
        everything = tensors | {f"meta/{name}": ("I64", [], struct.pack("<q", value)) for name, value in counters.items()}
        os.makedirs(self.path(folder))
        words = {"format": form, "model_name": "llama", "optimizer": "muon", "step": str(counters["step"]), "consumed_train_samples": str(SAMPLES)} | metadata
        checkpoint.write_file(self.path(folder, "model.safetensors"), everything, words)
        checkpoint.write_json(self.path(folder, "config.json"), checkpoint.CONFIG)
        return tensors

    def read(self, folder):
        """(tensors, counters, metadata) of a full state."""
        tensors = checkpoint.read(self.path(folder))
        counters = {name.removeprefix("meta/"): struct.unpack("<q", tensors.pop(name)[2])[0] for name in sorted(tensors) if name.startswith("meta/")}
        files = [file for file in os.listdir(self.path(folder)) if file.endswith(".safetensors")]
        with open(self.path(folder, files[0]), "rb") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            metadata = json.loads(file.read(length)).get("__metadata__", {})
        return tensors, counters, metadata

    def megatron_of(self, source, target, *words):
        return self.text("convert", source, target, "--to", "megatron", *words, *SETTINGS)

    def test_b62_the_steps_own_muon_state_and_files_of_another(self):
        tensors = self.full_state()
        self.megatron_of("full", "m", "--tp", 2, "--pp", 2)
        for rank in (0, 1):
            with open(self.path("m", f"layer_wise_optimizer_{rank}.pt"), "wb") as file:
                file.write(b"of another step")
        told = self.text("convert", "m", "back", "--to", "full-state", "--require-optim")
        self.assertIn("2 files `layer_wise_optimizer*` lie beside the step and are not read", told)
        self.assertIn("adam: 11 parameters, master 11, adam_mu 11, adam_nu 11\n", told)
        self.assertIn("muon: 28 parameters, master 28, muon_mu 28\n", told)
        self.assertEqual(self.read("back")[0], tensors)
        report = self.json("inspect", "m")
        self.assertEqual((report["optimizer"], report["consistent"]), ("muon", True))
        self.assertEqual(report["partition"]["muon"], {"parameters": 28, "slots": {"master": 28, "muon_mu": 28}})
        self.assertEqual(report["partition"]["adam"], {"parameters": 11, "slots": {"master": 11, "adam_mu": 11, "adam_nu": 11}})
        self.assertIn("layer_wise_optimizer", " ".join(report["notices"]))

    def test_b63_counters_that_differ(self):
        tensors = self.full_state()
        told = self.megatron_of("full", "m", "--tp", 2)
        self.assertIn("Muon's momentum is carried as it is: nothing says whether the source keeps an exponential average or a plain sum", told)
        self.assertIn("Muon's counter, 454212, has no place in Megatron's optimizer", told)
        counts = COUNTERS | {"consumed_train_samples": SAMPLES}
        self.assertEqual(self.json("inspect", "m")["counters"], counts)
        self.run_tool("convert", "m", "other", "--to", "megatron", "--pp", 2)     # another layout, by Megatron's own keys
        self.run_tool("convert", "other", "back", "--to", "full-state")
        found, counters, metadata = self.read("back")
        self.assertEqual((found, counters), (tensors, COUNTERS))
        self.assertEqual((metadata["step"], metadata["consumed_train_samples"], metadata["optimizer"]), ("454500", str(SAMPLES), "muon"))
        # A Hugging Face directory has no place for them, and that is told.
        self.assertIn("counters: step 454500, adam_count 454000, muon_count 454212", self.text("convert", "full", "hf", "--to", "hf"))
        self.full_state("odd", COUNTERS | {"lion_count": 3})
        self.refused("no", "convert", "odd", "no", "--to", "full-state", says=["meta/lion_count", "no place is known"])

    def test_b65_state_that_is_not_whole(self):
        name = "model.layers.2.input_layernorm.weight"
        self.full_state("half", drop=[f"optim/adam_nu/{name}"])
        for target in ("full-state", "megatron"):
            self.refused("no", "convert", "half", "no", "--to", target, *(SETTINGS if target == "megatron" else []), says=[name, "`adam_mu` only"])
        without = "model.layers.1.mlp.up_proj.weight"
        tensors = self.full_state("bare", drop=[f"optim/{slot}/{without}" for slot in ("master", "muon_mu")])
        told = self.text("convert", "bare", "copy", "--to", "full-state")
        self.assertIn(f"no state: 1 parameters ({without})", told)
        self.assertEqual(self.read("copy")[0], tensors)

    def test_one_optimizers_state_that_is_gone(self):
        items = checkpoint.tensors(checkpoint.CONFIG)
        muons = [f"optim/muon_mu/{name}" for name, (_, shape, _) in items.items() if is_muons(name, shape)]
        self.full_state("gone", drop=muons)
        self.refused("no", "convert", "gone", "no", "--to", "full-state", says=["names an optimizer", "`muon`", "no momentum of Muon's"])
        self.full_state("named", optimizer="adam")
        self.refused("no", "convert", "named", "no", "--to", "full-state", says=["`adam`", "Muon's momentum"])
        self.run_tool("convert", "gone", "weights", "--to", "hf", "--no-optim")
        self.same("weights", items)

    def test_the_form_of_the_other_converter(self):
        tensors = self.full_state("ling", form="ling3-muon-full-state-v1", model_name="ling3-tiny")
        self.run_tool("convert", "ling", "ours", "--to", "full-state")
        found, counters, metadata = self.read("ours")
        self.assertEqual((found, counters, metadata["format"]), (tensors, COUNTERS, "crossdock-full-state-v1"))
        self.run_tool("convert", "ling", "again", "--to", "full-state", "--for", "ling3")
        expected = {"format": "ling3-muon-full-state-v1", "model_name": "ling3-tiny", "optimizer": "muon", "step": "454500", "consumed_train_samples": str(SAMPLES)}
        self.assertEqual(self.read("again"), (tensors, COUNTERS, expected))
        # Ours has masters: they have no place there, and are told; or they become the parameters.
        self.full_state("full")
        self.assertIn("master weights (39 of them)", self.text("convert", "full", "less", "--to", "full-state", "--for", "ling3"))
        self.assertEqual(self.read("less")[0], tensors)
        self.refused("no", "convert", "full", "no", "--to", "full-state", "--for", "ling3", "--max-shard-size", "4KB", expect=2, says=["one file"])
        self.refused("no", "convert", "full", "no", "--to", "full-state", "--for", "ling3@1.0", says=["versions of ling3"])
        self.refused("no", "convert", "full", "no", "--to", "megatron", "--for", "ling3", expect=2, says=["--for ling3", "full-state"])


if __name__ == "__main__":
    main()
