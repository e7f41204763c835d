#!/usr/bin/env python3
"""Cases about MaxText checkpoints: each test carries the number of its case.

Needs only Python and CROSSDOCK, the program under test. MaxText itself and Orbax read and write in tests/oracle."""
import json
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(__file__))
import checkpoint  # noqa: E402
from case import Case, main  # noqa: E402


class MaxText(Case):
    def maxtext(self, name, *words):
        if not os.path.exists(self.path("hf")):
            self.model()
        self.run_tool("convert", "hf", name, "--to", "maxtext", "--family", "mistral", *words)
        return os.path.join(name, "0")

    def test_b36_more_and_fewer_rows_than_the_vocabulary(self):
        items = checkpoint.tensors(checkpoint.CONFIG)
        step = self.maxtext("more", "--padded-vocab-size", 64, "--dtype", "fp32")
        rows = {row["name"]: row["shape"] for row in self.json("inspect", step, "--tensors")["tensors"]}
        self.assertEqual(rows["params.params.token_embedder.embedding"], [64, 16])
        told = self.text("convert", step, "back", "--to", "hf", "--dtype", "bf16")
        self.assertIn("params.params.token_embedder.embedding, 896 bytes: 14 rows beyond the model's vocabulary of 50", told)
        found = checkpoint.read(self.path("back"))
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            self.assertEqual(found[name][1], [50, 16])
            self.assertTrue(found[name][2] == items[name][2], name)
        config = checkpoint.read_json(self.path(step, "hf", "config.json"))
        checkpoint.write_json(self.path(step, "hf", "config.json"), config | {"vocab_size": 70})
        self.refused("no", "convert", step, "no", "--to", "hf", says=["token_embedder.embedding", "70", "64"])

    def test_b07_norms_around_zero_are_shifted_once_and_listed(self):
        """Gemma's norms multiply by 1 + w, MaxText's by what is stored."""
        config = checkpoint.config(architectures=["Gemma2ForCausalLM"], model_type="gemma2", num_hidden_layers=2, query_pre_attn_scalar=4, sliding_window=32,
                                   attn_logit_softcapping=50.0, final_logit_softcapping=30.0, tie_word_embeddings=True, torch_dtype="float32",
                                   hidden_activation="gelu_pytorch_tanh", attention_bias=False)
        shapes = checkpoint.shapes(config)
        del shapes["lm_head.weight"]
        for layer in range(2):
            for norm in ("pre_feedforward_layernorm", "post_feedforward_layernorm"):
                shapes[f"model.layers.{layer}.{norm}.weight"] = [16]
        items = {name: ("F32", shape, b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))) for name, (_, shape, data) in checkpoint.filled(shapes).items()}
        checkpoint.write(self.path("gemma"), config, items)
        mapping = self.json("manifest", "gemma", "--to", "maxtext", "--family", "gemma2")
        self.assertEqual({name for row in mapping["tensors"] for name in row["hub"]}, set(shapes))
        self.assertFalse([row["name"] for row in mapping["tensors"] if not row["rule"] or "gemma2.toml" not in row["rule"]])
        shifted = [row for row in mapping["tensors"] if row["expression"].count("offset[1]") == 1]
        norms = {name for name in shapes if "norm" in name}
        self.assertEqual({source for row in shifted for _, source in row["sources"]}, norms)
        self.assertFalse([row["name"] for row in mapping["tensors"] if "offset" in row["expression"] and row not in shifted])
        told = self.text("convert", "gemma", "m", "--to", "maxtext", "--family", "gemma2")
        self.assertIn("scaled or shifted values, computed in F32", told)
        self.run_tool("convert", os.path.join("m", "0"), "again", "--to", "maxtext", "--iteration", 1)
        for tree in (os.path.join("m", "0"), os.path.join("again", "1")):
            self.run_tool("convert", tree, "back", "--to", "hf", "--force")
            found = checkpoint.read(self.path("back"))
            for name in norms:
                self.assertTrue(found[name][2] == items[name][2], name)

    def test_a_model_of_16_bits_comes_back_as_it_was(self):
        """Query kernels are scaled, computed in F32 and stored so on the way."""
        self.model()
        self.assertIn("round trip hf -> maxtext -> hf: equal", self.text("roundtrip", "hf", "--via", "maxtext").lower())
        report = checkpoint.read_json(self.path("roundtrip_comparison.json"))
        self.assertTrue(report["passed"])
        self.assertEqual(report["num_bit_identical"], report["num_baseline"])

    def test_b81_with_and_without_marker_and_unfinished(self):
        with_marker, without = self.maxtext("marked"), self.maxtext("bare", "--no-commit-marker")
        for step, there in ((with_marker, True), (without, False)):
            for folder in ("", "items"):
                self.assertEqual(os.path.exists(self.path(step, folder, "commit_success.txt")), there, step)
        self.text("convert", with_marker, "a", "--to", "hf")
        self.text("convert", without, "b", "--to", "hf")
        self.assertIn("equal", self.text("verify", "a", "b"))
        os.rename(self.path(without), self.path("bare", "0.orbax-checkpoint-tmp"))
        self.refused("no", "convert", os.path.join("bare", "0.orbax-checkpoint-tmp"), "no", "--to", "hf", says=["incomplete"])
        # In a run it is passed over, and so is a step whose item was being written.
        shutil.copytree(self.path("bare", "0.orbax-checkpoint-tmp"), self.path("marked", "9.orbax-checkpoint-tmp"))
        shutil.copytree(self.path(with_marker), self.path("marked", "5"))
        os.rename(self.path("marked", "5", "items"), self.path("marked", "5", "items.orbax-checkpoint-tmp"))
        told = self.text("inspect", "marked")
        self.assertIn("`5` is incomplete", told)
        self.assertIn("`9.orbax-checkpoint-tmp` was not saved to its end", told)
        self.assertIn("marked/0", told)
        self.refused("no", "convert", "hf", "no", "--to", "hf", "--no-commit-marker", says=["--no-commit-marker", "--to maxtext"], expect=2)

    def test_b86_layers_scanned_or_by_number_are_found_and_the_fact_is_stored(self):
        trees = {"scanned": self.maxtext("scanned"), "numbered": self.maxtext("numbered", "--no-scan-layers")}
        for form, step in trees.items():
            with open(self.path(step, "_CHECKPOINT_METADATA")) as file:
                metadata = json.load(file)
            self.assertEqual(metadata["custom_metadata"]["scan_layers"], form == "scanned")
            names = {row["name"] for row in self.json("inspect", step, "--tensors")["tensors"]}
            self.assertEqual("params.params.decoder.layers_3.mlp.wo.kernel" in names, form == "numbered")
            self.assertEqual("params.params.decoder.layers.mlp.wo.kernel" in names, form == "scanned")
            # A flag that says otherwise is told, and the names count.
            metadata["custom_metadata"]["scan_layers"] = form != "scanned"
            checkpoint.write_json(self.path(step, "_CHECKPOINT_METADATA"), metadata)
            self.assertIn("the names count", self.text("convert", step, f"{form}-hf", "--to", "hf"))
        self.assertIn("equal", self.text("verify", "scanned-hf", "numbered-hf"))
        self.text("convert", trees["scanned"], "other", "--to", "maxtext", "--no-scan-layers")
        self.text("convert", "other", "other-hf", "--to", "hf")
        self.assertIn("equal", self.text("verify", "scanned-hf", "other-hf"))


if __name__ == "__main__":
    main()
