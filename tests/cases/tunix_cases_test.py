#!/usr/bin/env python3
"""Cases about post-training checkpoints: each test carries the number of its case.

Needs only Python and CROSSDOCK, the program under test; the checkpoints are the real Tunix' (tests/golden/tunix). Tunix and MaxText themselves load what
the tool makes in tests/oracle."""
import json
import os
import pathlib
import shutil
import sys

sys.path.insert(0, os.path.dirname(__file__))
import checkpoint  # noqa: E402
from case import Case, main  # noqa: E402

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/tunix"


def rows(case):
    return json.loads((GOLDEN / f"trees/{case}.json").read_text())["rows"]


class Tunix(Case):
    def names(self, *words):
        return {row["name"]: (row["dtype"], row["shape"]) for row in self.json("inspect", *words, "--tensors")["tensors"]}

    def there_and_back(self, case, source):
        """To MaxText's tree, as MaxText names it, and back to every leaf that the trainer saved."""
        self.run_tool("convert", source, f"{case}-maxtext", "--to", "maxtext")
        items = {row[6]: ("I32" if row[3] == "U32" else row[3], row[4]) for row in rows(case) if row[6]}
        # Pre-training keeps a step, and counts its schedule, where post-training does not.
        found = self.names(f"{case}-maxtext")
        self.assertEqual({name: found.get(name) for name in items}, items)
        self.assertLessEqual(found.keys() - items.keys(), {"step"})
        self.run_tool("convert", f"{case}-maxtext", f"{case}-back", "--to", "tunix")
        saved = {".".join([row[0], *map(str, row[1])]): (row[3], row[4]) for row in rows(case) if row[3]}
        self.assertEqual(self.names(f"{case}-back"), saved)
        self.assertIn("equal", self.text("verify", source, f"{case}-back", "--hf-template", self.template()))

    def test_b89_levels_go_and_come_again(self):
        self.there_and_back("sft", GOLDEN / "checkpoints/sft")
        self.there_and_back("rl", GOLDEN / "checkpoints/rl/actor")
        self.there_and_back("distillation", GOLDEN / "checkpoints/distillation")

    def test_b89_the_trainers_own_words_stay(self):
        self.run_tool("convert", GOLDEN / "checkpoints/rl/critic", "m", "--to", "maxtext")
        self.run_tool("convert", "m", "back", "--to", "tunix")
        words = checkpoint.read_json(self.path("back/20/_CHECKPOINT_METADATA"))
        self.assertEqual(words["custom_metadata"], {"global_step": 5, "scan_layers": True})
        self.assertEqual(sorted(words["item_handlers"]), ["model_params", "optimizer_state"])

    def test_b89_from_one_trainer_to_another(self):
        rl = GOLDEN / "checkpoints/rl/actor"
        self.run_tool("convert", GOLDEN / "checkpoints/sft", "as-rl", "--to", "tunix", "--tunix-template", rl)
        self.assertEqual(self.names("as-rl"), self.names(rl))
        self.assertIn("equal", self.text("verify", GOLDEN / "checkpoints/sft", "as-rl", "--hf-template", self.template()))
        # From other formats by the family's rules; the optimizer begins anew without state.
        self.run_tool("convert", rl, "full", "--to", "full-state", "--hf-template", self.template())
        self.run_tool("convert", "full", "from-full", "--to", "tunix", "--tunix-template", rl)
        self.assertEqual(self.names("from-full"), self.names(rl))
        self.run_tool("convert", "full", "weights", "--to", "tunix", "--no-optim", "--tunix-template", rl)
        self.assertEqual(self.names("weights"), {name: what for name, what in self.names(rl).items() if name.startswith("model_params.")})

    def template(self):
        checkpoint.write_json(self.path("config.json"), {
            "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
            "intermediate_size": 12, "vocab_size": 18, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": True, "torch_dtype": "float32"})
        return "config.json"

    def test_b87_random_generators_are_no_weights_and_come_back(self):
        """The trainer's modules keep generators of random numbers among the weights: counts and keys of every layer."""
        source = GOLDEN / "checkpoints/sft"
        generators = {name: form for name, form in self.names(source).items() if ".rngs." in name}
        self.assertGreater(len(generators), 5)
        told = self.text("convert", source, "hf", "--to", "hf", "--hf-template", self.template())
        self.assertIn("rngs", told[told.index("left out"):])
        self.assertFalse([name for name in checkpoint.read(self.path("hf")) if "rngs" in name])
        told = self.text("convert", source, "m", "--to", "maxtext")
        self.assertIn(f"({len(generators)} of them)", told[told.index("left out"):])
        self.run_tool("convert", "m", "back", "--to", "tunix")
        self.assertEqual({name: form for name, form in self.names("back").items() if ".rngs." in name}, generators)

    def test_b89_what_does_not_fit_is_refused(self):
        rl, lora = GOLDEN / "checkpoints/rl/actor", GOLDEN / "checkpoints/lora"
        self.refused("no", "convert", rl, "no", "--to", "tunix", "--tunix-template", lora, says=["kernel_lora_a", "nothing fills"])
        self.refused("no", "convert", rl, "no", "--to", "tunix", "--tunix-template", GOLDEN / "checkpoints/old_item", says=["optimizer_state", "--no-optim"])
        self.refused("no", "convert", rl, "no", "--to", "maxtext", "--tunix-template", rl, says=["--tunix-template", "--to tunix"], expect=2)
        self.refused("no", "convert", rl, "no", "--to", "tunix", "--for", "maxtext", says=["--for", "--tunix-template"], expect=2)

    def test_b89_a_merge_of_adapters_is_not_resumed(self):
        lora, base = GOLDEN / "checkpoints/lora", GOLDEN / "checkpoints/sft"
        words = ["convert", lora, "merged", "--to", "maxtext", "--lora-base", base, "--set", "lora_alpha=4"]
        self.refused("merged", *words, "--resume", says=["alpha", "without --resume"], expect=2)
        self.assertIn(str(lora), self.text(*words))

    def test_b89_adapters_of_a_step_belong_to_the_weights_of_that_step(self):
        """A run of which step 20 holds adapters alone, and 30 weights of later."""
        for step, case in (("20", "lora"), ("30", "sft")):
            shutil.copytree(GOLDEN / "checkpoints" / case / "20", self.path("run", step))
        self.refused("no", "convert", "run", "no", "--to", "maxtext", "--step", 20, "--lora-base", "run", "--set", "lora_alpha=4", says=["run/20", "wi_0.kernel", "not there"])
        self.run_tool("convert", "run", "merged", "--to", "maxtext", "--step", 20, "--lora-base", os.path.join("run", "30"), "--set", "lora_alpha=4")


if __name__ == "__main__":
    main()
