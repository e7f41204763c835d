#!/usr/bin/env python3
"""Cases of models with experts and with multi-token prediction: each test carries the number of its case.

Needs only Python and CROSSDOCK, the program under test. Cases that need the real libraries are in tests/oracle."""
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(__file__))
import checkpoint  # noqa: E402
import moe_checkpoint  # noqa: E402
from case import Case, main  # noqa: E402


def weights(items):
    return {name: item for name, item in items.items() if not name.endswith("e_score_correction_bias")}


class MoeCase(Case):
    def qwen(self, name="hf", **changes):
        config, items = moe_checkpoint.qwen(**changes)
        return config, moe_checkpoint.write(self.path(name), (config, items))

    def deepseek(self, name="hf", **changes):
        config, items = moe_checkpoint.deepseek(**changes)
        return config, moe_checkpoint.write(self.path(name), (config, items))

    def config(self, folder):
        return checkpoint.read_json(self.path(folder), "config.json")

    def index(self, folder):
        return checkpoint.read_json(self.path(folder), "model.safetensors.index.json")


class Experts(MoeCase):
    def test_b13_every_target_tensor_has_its_source(self):
        _, items = self.qwen()
        manifest = self.json("manifest", "hf", "--to", "megatron", "--ep", 3)
        named = set()
        for row in manifest["tensors"]:
            self.assertTrue(row["sources"], row["name"])
            named |= {name for _, name in row["sources"]}
        self.assertEqual(named, set(items))
        del items["model.layers.1.mlp.experts.7.up_proj.weight"]
        checkpoint.write(self.path("less"), moe_checkpoint.QWEN, items)
        self.refused("no", "convert", "less", "no", "--to", "megatron", says=["model.layers.1.mlp.experts.7.up_proj.weight", "missing"])

    def test_b14_experts_by_number(self):
        _, items = self.qwen()
        self.run_tool("convert", "hf", "m", "--to", "megatron", "--tp", 2, "--ep", 2)
        self.run_tool("convert", "m", "back", "--to", "hf", "--max-shard-size", "4KB")
        self.same("back", items)
        index = self.index("back")
        self.assertEqual(index["metadata"]["total_size"], sum(len(data) for _, _, data in items.values()))
        for layer in range(3):
            experts = [name for name in items if name.startswith(f"model.layers.{layer}.mlp.experts.") and name.endswith("down_proj.weight")]
            self.assertEqual(sorted(int(name.split(".")[5]) for name in experts), list(range(12)))
            self.assertLessEqual(set(experts), set(index["weight_map"]))
        again = self.path("twice")
        os.makedirs(again)
        shutil.copy(self.path("hf", "config.json"), again)
        for file in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
            checkpoint.write_file(os.path.join(again, file), {"model.norm.weight": items["model.norm.weight"]})
        checkpoint.write_json(os.path.join(again, "model.safetensors.index.json"),
                              {"metadata": {}, "weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors", "x": "model-00002-of-00002.safetensors"}})
        self.refused("no", "convert", "twice", "no", "--to", "hf", says=["model.norm.weight"])

    def test_b20_two_storage_forms(self):
        config, items = self.qwen()
        fused = moe_checkpoint.fused(config, items)
        checkpoint.write(self.path("fused"), config, fused)
        checkpoint.write(self.path("flipped"), config, moe_checkpoint.fused(config, items, flip=True))
        for source in ("fused", "flipped"):
            # config.json is the same in all of them: names and shapes decide.
            self.run_tool("convert", source, f"{source}-m", "--to", "megatron", "--ep", 4)
            self.run_tool("convert", f"{source}-m", f"{source}-back", "--to", "hf")
            self.same(f"{source}-back", items)
            self.assertTrue(self.text("verify", "hf", source).startswith("equal\n"))
        self.run_tool("convert", "fused-m", "as-template", "--to", "hf", "--hf-template", "fused")
        self.same("as-template", fused)
        self.run_tool("convert", "fused-m", "flipped-template", "--to", "hf", "--hf-template", "flipped")
        self.same("flipped-template", checkpoint.read(self.path("flipped")))
        self.run_tool("convert", "fused-m", "as-asked", "--to", "hf", "--experts", "fused")
        self.same("as-asked", fused)
        self.run_tool("convert", "fused", "single", "--to", "hf", "--hf-template", "fused", "--experts", "single")
        self.same("single", items)
        self.refused("no", "convert", "hf", "no", "--to", "hf", "--experts", "paired", expect=2, says=["`single`", "`fused`", "`--experts paired`"])
        self.refused("no", "convert", "hf", "no", "--to", "megatron", "--experts", "fused", expect=2, says=["--experts", "megatron"])

    def test_b20_forms_that_only_the_order_of_values_tells_apart(self):
        # [E, h, 2m] with gate and up in halves or in pairs: nothing in names or shapes tells which.
        rules = self.path("rules.toml")
        with open(os.path.join(os.path.dirname(__file__), "..", "..", "families", "qwen3_moe.toml"), encoding="utf-8") as file:
            text = file.read()
        begin = text.index("[spellings]")
        rows = '"model.layers.{l}.mlp.experts.{e}.{gate,up}_proj.weight"'
        text = text[:begin] + f"""[spellings]
a = [[{rows}, "model.layers.{{l}}.mlp.experts.gate_up_proj : gate_up"]]
b = [[{rows}, "model.layers.{{l}}.mlp.experts.gate_up_proj : gate_up, T"]]
""" + text[text.index("[letters]", begin):]
        with open(rules, "w", encoding="utf-8") as out:
            out.write(text)
        config, items = moe_checkpoint.qwen(moe_intermediate_size=8)
        fused = moe_checkpoint.fused(config, items)
        fused = {name: item for name, item in fused.items() if not name.endswith("down_proj")} | {name: item for name, item in items.items() if name.endswith("down_proj.weight")}
        checkpoint.write(self.path("fused"), config, fused)
        self.refused("no", "convert", "fused", "no", "--to", "hf", "--rules", rules, says=["`a` and `b`", "gate_up_proj", "--rules"])


class Prediction(MoeCase):
    def test_b25_carried_without_a_flag(self):
        _, items = self.deepseek()
        self.run_tool("convert", "hf", "m", "--to", "megatron", "--tp", 2, "--pp", 3, "--pipeline-layers", "1,1,1", "--ep", 2)
        inside = self.json("inspect", "m", "--tensors")
        names = {row["name"] for row in inside["tensors"]}
        self.assertIn("mtp.layers.0.eh_proj.weight", names)
        self.assertFalse([name for name in names if name.startswith("mtp.") and ("embed" in name or "head" in name)])
        shutil.rmtree(self.path("m", "release", "hf"))
        self.run_tool("convert", "m", "back", "--to", "hf")
        self.same("back", items)
        config = self.config("back")
        self.assertEqual(config["num_nextn_predict_layers"], 1)
        self.assertEqual(config["first_k_dense_replace"], 1)
        self.assertEqual((config["n_shared_experts"], config["q_lora_rank"], config["n_routed_experts"]), (2, 12, 12))
        self.assertEqual(config["routed_scaling_factor"], 2.5)
        self.assertEqual(config["num_key_value_heads"], 4)

    def test_b25_left_behind_when_asked(self):
        _, items = self.deepseek()
        rest = {name: item for name, item in items.items() if not name.startswith("model.layers.3.")}
        self.run_tool("convert", "hf", "m", "--to", "megatron")
        for source, more in (("hf", []), ("m", []), ("m", ["--hf-template", "hf"])):
            target = f"{source}{len(more)}"
            text = self.text("convert", source, target, "--to", "hf", "--mtp", "drop", *more)
            self.assertIn("--mtp drop", text)
            self.same(target, rest)
            self.assertEqual(self.config(target)["num_nextn_predict_layers"], 0)

    def test_b26_announced_and_not_there(self):
        config, items = moe_checkpoint.deepseek(num_nextn_predict_layers=0)
        checkpoint.write(self.path("plain"), config, items)
        self.deepseek("announces")
        self.run_tool("convert", "plain", "m", "--to", "megatron")
        text = self.text("convert", "m", "back", "--to", "hf", "--hf-template", "announces")
        self.assertIn("num_nextn_predict_layers 1 -> 0", text)
        self.same("back", items)
        self.assertEqual(self.config("back")["num_nextn_predict_layers"], 0)
        # transformers drops these layers when it saves, and keeps the field.
        checkpoint.write(self.path("saved"), config | {"num_nextn_predict_layers": 1}, items)
        text = self.text("convert", "saved", "again", "--to", "hf")
        self.assertIn("announces 1 layers of multi-token prediction", text)
        self.same("again", items)
        self.assertEqual(self.config("again")["num_nextn_predict_layers"], 0)

    def test_b26_there_and_not_announced(self):
        config, items = moe_checkpoint.deepseek()
        checkpoint.write(self.path("hf"), config | {"num_nextn_predict_layers": 0}, items)
        self.run_tool("convert", "hf", "back", "--to", "hf")
        self.same("back", items)
        self.assertEqual(self.config("back")["num_nextn_predict_layers"], 1)

    def test_b26_taken_from_the_template_on_request(self):
        config, items = moe_checkpoint.deepseek(num_nextn_predict_layers=0)
        checkpoint.write(self.path("plain"), config, items)
        more, all_items = moe_checkpoint.deepseek()
        checkpoint.write(self.path("reference"), more, all_items, shards=3)
        self.run_tool("convert", "plain", "m", "--to", "megatron", "--tp", 2)
        prefix = "model.layers.3."                         # its copies of embedding and head are those of the model that is written
        wanted = items | {name: item for name, item in all_items.items() if name.startswith(prefix)}
        wanted |= {prefix + "embed_tokens.weight": items["model.embed_tokens.weight"], prefix + "shared_head.head.weight": items["lm_head.weight"]}
        for source, to in (("plain", "a"), ("m", "b")):
            text = self.text("convert", source, to, "--to", "hf", "--hf-template", "reference", "--mtp", "template")
            self.assertIn("1 layer of multi-token prediction", text)
            self.same(to, wanted)
            self.assertEqual(self.config(to)["num_nextn_predict_layers"], 1)
        other, others = moe_checkpoint.deepseek(q_lora_rank=8)
        checkpoint.write(self.path("larger"), other, others)
        self.refused("no", "convert", "plain", "no", "--to", "hf", "--hf-template", "larger", "--mtp", "template", says=["other sizes"], expect=2)

    def test_copies_must_be_equal_and_may_be_missing(self):
        config, items = moe_checkpoint.deepseek()
        copies = {"model.layers.3.embed_tokens.weight", "model.layers.3.shared_head.head.weight"}
        without = {name: item for name, item in items.items() if name not in copies}
        checkpoint.write(self.path("without"), config, without)
        self.run_tool("convert", "without", "back", "--to", "hf")
        self.same("back", without)
        for target in ("megatron", "megatron-legacy"):       # which keep one embedding and one head: Hugging Face gets its copies again
            self.run_tool("convert", "without", target, "--to", target, "--tp", 2, "--pp", 2, "--first-stage-layers", 1)
            self.run_tool("convert", target, "of-" + target, "--to", "hf")
            self.same("of-" + target, items)
        self.run_tool("convert", "megatron", "state", "--to", "full-state")
        self.run_tool("convert", "state", "of-state", "--to", "hf")
        self.same("of-state", items)
        name = "model.layers.3.embed_tokens.weight"
        data = items[name][2]
        checkpoint.write(self.path("other"), config, items | {name: ("BF16", items[name][1], bytes([data[0] ^ 1]) + data[1:])})
        self.refused("no", "convert", "other", "no", "--to", "megatron", says=[name, "model.embed_tokens.weight", "--mtp drop"])
        self.run_tool("convert", "other", "dropped", "--to", "hf", "--mtp", "drop")

    def test_b30_the_index_holds_what_the_shards_hold(self):
        config, items = moe_checkpoint.deepseek(num_nextn_predict_layers=0)
        checkpoint.write(self.path("plain"), config, items)
        more, all_items = moe_checkpoint.deepseek()
        checkpoint.write(self.path("reference"), more, all_items, shards=3)
        self.run_tool("convert", "plain", "m", "--to", "megatron")
        self.run_tool("convert", "m", "back", "--to", "hf", "--hf-template", "reference", "--max-shard-size", "8KB")
        index = self.index("back")
        held = {}
        for file in sorted(os.listdir(self.path("back"))):
            if not file.endswith(".safetensors"):
                continue
            os.makedirs(self.path("one"), exist_ok=True)
            shutil.copy(self.path("back", file), self.path("one"))
            held |= {name: file for name in checkpoint.read(self.path("one"))}
            shutil.rmtree(self.path("one"))
        self.assertEqual(index["weight_map"], held)
        self.assertEqual(set(held), set(items))
        self.assertEqual(index["metadata"]["total_size"], sum(len(data) for _, _, data in items.values()))


class Islands(MoeCase):
    def test_b38_the_routers_bias_stays_in_f32(self):
        _, items = self.deepseek()
        biases = {name: item for name, item in items.items() if name.endswith("e_score_correction_bias")}
        self.assertEqual(len(biases), 3)                         # two layers with experts, and the one behind them
        self.run_tool("convert", "hf", "m", "--to", "megatron", "--dtype", "bf16", "--ep", 3)
        self.run_tool("convert", "m", "back", "--to", "hf", "--dtype", "fp16")
        found = checkpoint.read(self.path("back"))
        for name, item in biases.items():
            self.assertEqual(found[name], (item[0], item[1], item[2]), name)
        self.assertEqual({item[0] for item in weights(found).values()}, {"F16"})
        self.assertEqual(self.config("back")["torch_dtype"], "float16")
        self.run_tool("convert", "hf", "dcp", "--to", "dcp", "--dtype", "fp32")
        self.run_tool("convert", "dcp", "again", "--to", "hf", "--dtype", "bf16", "--hf-template", "hf")
        self.same("again", items)


class Ranks(MoeCase):
    """Expert ranks and their tensor ranks, in both of Megatron's forms."""
    FORMATS = ("megatron", "megatron-legacy")

    def chain(self, start, items, steps):
        """From step to step, then to Hugging Face: byte-equal to the start."""
        before = start
        for number, (kind, words) in enumerate(steps):
            place = f"{start}-{number}-{kind}"
            self.run_tool("convert", before, place, "--to", kind, *words)
            before = place
        self.run_tool("convert", before, f"{start}-back", "--to", "hf")
        self.same(f"{start}-back", items)
        shutil.rmtree(self.path(f"{start}-back"))

    def test_b16_expert_ranks_are_merged_and_divided_anew(self):
        _, items = self.qwen(num_hidden_layers=4)
        for kind in self.FORMATS:
            self.chain("hf", items, [(kind, ["--tp", 2, "--ep", 4]), (kind, ["--ep", 2]), (kind, ["--ep", 1])])
            shutil.rmtree(self.path(f"hf-0-{kind}")), shutil.rmtree(self.path(f"hf-1-{kind}")), shutil.rmtree(self.path(f"hf-2-{kind}"))

    def test_b19_experts_are_cut_by_ranks_of_their_own(self):
        _, items = self.qwen(num_hidden_layers=4)
        for number, words in enumerate((["--etp", 2], ["--tp", 2, "--ep", 2, "--etp", 1], ["--tp", 2, "--ep", 3, "--etp", 2], ["--ep", 3, "--etp", 2])):
            os.rename(self.path("hf"), self.path(f"m{number}"))
            self.chain(f"m{number}", items, [("megatron", words)])
            os.rename(self.path(f"m{number}"), self.path("hf"))
        # The directories of the legacy form are called by tensor rank and expert rank.
        self.chain("hf", items, [("megatron-legacy", ["--tp", 2, "--ep", 2, "--etp", 1]), ("megatron-legacy", ["--tp", 2, "--ep", 3])])
        pairs = sorted(name for name in os.listdir(self.path("hf-0-megatron-legacy", "release")) if name.startswith("mp_rank"))
        self.assertEqual(pairs, ["mp_rank_00_000", "mp_rank_01_001"])
        self.refused("none", "convert", "hf", "none", "--to", "megatron-legacy", "--etp", 2, says=("--etp 2", "--to megatron"))

    def test_b24_a_long_chain_of_dense_and_expert_layers(self):
        _, items = self.deepseek(num_hidden_layers=7, num_nextn_predict_layers=0)
        first, second = self.FORMATS
        pp4 = ["--pp", 4, "--first-stage-layers", 1, "--ep", 2]
        for one, other in ((first, second), (second, first)):
            self.chain("hf", items, [(one, pp4), (one, ["--tp", 2]), (other, pp4 + ["--tp", 2]), (other, ["--ep", 3])])
            for folder in [name for name in os.listdir(self.root) if name != "hf"]:
                shutil.rmtree(self.path(folder))


if __name__ == "__main__":
    main()
