#!/usr/bin/env python3
"""Cases about Muon's state in models with experts: every slot of every tensor through Megatron's ranks and through MaxText, and back, bit for bit.

Needs only Python and CROSSDOCK, the program under test. The real optimizers are in tests/oracle/test_muon.py."""
import os
import struct
import sys

sys.path.insert(0, os.path.dirname(__file__))
import checkpoint  # noqa: E402
import ling3_checkpoint  # noqa: E402
import moe_checkpoint  # noqa: E402
from case import Case, main  # noqa: E402

SETTINGS = ["--set", "lr=1e-3", "--set", "min_lr=1e-5", "--set", "weight_decay=0.1", "--set", "muon_momentum=0.95"]
COUNTERS = {"step": 454500, "muon_count": 454212, "adam_count": 454000}


class Muon(Case):
    def write(self, folder, tensors, config, name, **metadata):
        everything = tensors | {f"meta/{counter}": ("I64", [], struct.pack("<q", value)) for counter, value in COUNTERS.items()}
        os.makedirs(self.path(folder))
        words = {"format": "crossdock-full-state-v1", "model_name": name, "optimizer": "muon", "step": str(COUNTERS["step"])} | metadata
        checkpoint.write_file(self.path(folder, "model.safetensors"), everything, words)
        checkpoint.write_json(self.path(folder, "config.json"), config)
        return everything

    def test_deepseek_v3_through_two_by_two_by_two_ranks(self):
        config, items = moe_checkpoint.deepseek(num_hidden_layers=4)
        tensors, number = {}, 0
        for name, (dtype, shape, data) in items.items():
            if name.endswith(("shared_head.head.weight", ".embed_tokens.weight")) and name.startswith("model.layers."):
                continue   # copies: the model's own are carried
            tensors[f"param/{name}"] = (dtype, shape, data)
            if name.endswith("e_score_correction_bias"):
                continue
            muon = len(shape) == 2 and "embed" not in name and "lm_head" not in name
            for slot in ["master"] + (["muon_mu"] if muon else ["adam_mu", "adam_nu"]):
                number += 1
                count = len(data) // 2
                tensors[f"optim/{slot}/{name}"] = ("F32", shape, struct.pack(f"<{count}f", *(number + i / 128 for i in range(count))))
        expected = self.write("full", tensors, config, "deepseek_v3", muon_momentum="ema")
        told = self.text("convert", "full", "m", "--to", "megatron", "--tp", 2, "--pp", 2, "--ep", 2, *SETTINGS)
        self.assertIn("Muon's momentum is an exponential average on both sides", told)
        self.text("convert", "m", "back", "--to", "full-state", "--require-optim")
        self.same("back", expected)

    def test_ling3_tiny_through_megatron_and_maxtext(self):
        names = ling3_checkpoint.shapes()
        self.assertEqual(len(names), 9686)
        tensors = ling3_checkpoint.full_state()
        expected = self.write("full", tensors, ling3_checkpoint.CONFIG, "ling3")
        with open(self.path("rules.toml"), "w") as file:
            file.write(ling3_checkpoint.rules())
        rules = ["--rules", "rules.toml"]
        self.text("convert", "full", "m", "--to", "megatron", "--tp", 2, "--pp", 2, "--ep", 2, *rules, *SETTINGS)
        self.text("convert", "m", "back", "--to", "full-state", "--require-optim", *rules)
        self.same("back", expected)
        # MaxText keeps no masters; layers scanned as the fork scans them, in the Linen form, and by number.
        kept = {name: item for name, item in expected.items() if not name.startswith("optim/master/")}
        for form in (["--for", "maxtext-linen"], ["--no-scan-layers"]):
            folder = form[-1].strip("-")
            self.text("convert", "full", f"x-{folder}", "--to", "maxtext", *form)
            self.text("convert", f"x-{folder}", f"b-{folder}", "--to", "full-state", "--require-optim")
            self.same(f"b-{folder}", kept)
        tree = {row["name"]: row["shape"] for row in self.json("inspect", "x-maxtext-linen", "--tensors")["tensors"]}
        h, d = 8, 8
        for name, shape in {
            "decoder.dense_layers_0.mlp.wi_0.kernel": [h, 12], "decoder.dense_layers_0.attention.q_conv.kernel": [4, d], "decoder.moe_layers_2.attention.wq_b.kernel": [6, 2, 6],
            "decoder.moe_layers_0.mlp.MoeBlock_0.wi_0": [128, h, 4], "decoder.moe_layers.layers_0.attention.g_proj.kernel": [h, 5, d],
            "decoder.moe_layers.layers_3.attention.out.kernel": [2, 5, 4, h], "decoder.moe_layers.layers_3.mlp.MoeBlock_0.wo": [128, 5, 4, h],
            "decoder.moe_layers.layers_1.mlp.MoeBlock_0.gate.bias": [128, 5], "mtp_block.mtp_layer_1.mtp_1_projection.kernel": [2 * h, h],
            "mtp_block.mtp_layer_1.mtp_1_transformer_layer.mlp.MoeBlock_0.wi_1": [128, h, 4],
        }.items():
            self.assertEqual(tree.get(f"params.params.{name}"), shape, name)
        self.assertNotIn("params.params.decoder.moe_layers_3.attention.q_proj.kernel", tree)
        # The weights alone, on to Hugging Face names.
        self.text("convert", "x-maxtext-linen", "hf", "--to", "hf")
        self.same("hf", {name.removeprefix("param/"): item for name, item in expected.items() if name.startswith("param/")})

    def test_momentum_of_a_sum_and_back(self):
        """ling3's own form says nothing of its momentum; 1 - 0.75 is a power of two, so the way back gives the same bits."""
        tensors = ling3_checkpoint.full_state(masters=False)
        expected = self.write("ling", tensors, ling3_checkpoint.CONFIG, "ling3-tiny", format="ling3-muon-full-state-v1", consumed_train_samples="7")
        told = self.text("convert", "ling", "x", "--to", "maxtext", "--muon-momentum", "sum", "--set", "muon_momentum=0.75")
        self.assertIn("from a plain sum to an exponential average", told)
        self.assertIn("times 0.25 (b = 0.75), exactly", told)
        report = self.json("convert", "x", "back", "--to", "full-state", "--for", "ling3", "--muon-momentum", "sum")
        self.assertEqual({key: report["muon_momentum"][key] for key in ("source", "target", "stated_of", "beta", "factor", "exact")},
                         {"source": "ema", "target": "sum", "stated_of": "target", "beta": 0.75, "factor": 4.0, "exact": True})
        self.same("back", expected)
        name = "model.layers.3.attention.dense.weight"
        self.text("convert", "x", "ema", "--to", "full-state")
        found, sums = (struct.unpack("<64f", item[f"optim/muon_mu/{name}"][2]) for item in (checkpoint.read(self.path("ema")), expected))
        self.assertEqual([4 * value for value in found], list(sums))
        self.refused("no", "convert", "ling", "no", "--to", "maxtext", "--muon-momentum", "sum", says=["--set muon_momentum="])
        self.refused("no", "convert", "x", "no", "--to", "maxtext", "--muon-momentum", "sum", says=["both sides are known"], expect=2)


if __name__ == "__main__":
    main()
