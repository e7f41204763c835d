#!/usr/bin/env python3
"""Cases from users' daily life about what a result holds: each test carries the number of its case.

Needs only Python and CROSSDOCK, the program under test. Cases that need the real libraries are in tests/oracle."""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile

sys.path.insert(0, os.path.dirname(__file__))
import checkpoint  # noqa: E402
from case import Case, PROGRAM, main  # noqa: E402


class Layouts(Case):
    def test_b09_more_ranks_than_kv_heads(self):
        items = self.model()
        # 4 heads over 4 ranks, 2 KV heads: Megatron duplicates them on loading, the file holds each once.
        self.run_tool("convert", "hf", "m", "--to", "megatron", "--tp", 4)
        self.run_tool("convert", "m", "back", "--to", "hf")
        self.same("back", items)
        for tp in (3, 8):
            self.refused("no", "convert", "hf", "no", "--to", "megatron", "--tp", tp, expect=2,
                         says=["num_key_value_heads 2", f"--tp {tp}", "expected --tp of 1, 2, 4"])

    def test_b53_layers_that_do_not_divide(self):
        items = self.model()
        self.refused("no", "convert", "hf", "no", "--to", "megatron", "--pp", 3, expect=2,
                     says=["4 layers", "pp 3", "4 = 3 x 1 + 1", "--pipeline-layers 2,1,1"])
        self.run_tool("convert", "hf", "m", "--to", "megatron", "--pp", 3, "--pipeline-layers", "2,1,1")
        self.run_tool("convert", "m", "back", "--to", "hf")
        self.same("back", items)
        self.refused("no", "convert", "hf", "no", "--to", "megatron", "--pp", 3, "--pipeline-layers", "2,1", expect=2, says=["2,1"])
        self.refused("no", "convert", "hf", "no", "--to", "megatron", "--pp", 3, "--pipeline-layers", "2,1,2", expect=2, says=["5", "4"])

    def test_b54_virtual_stages_with_an_uneven_last_stage(self):
        items = self.model(num_hidden_layers=10)
        layout = ["--to", "megatron", "--pp", 2, "--vpp", 2, "--last-stage-layers", 4]
        text = self.text("convert", "hf", "m", *layout, "--dry-run")
        self.assertIn("pipeline stages:\n  stage 0, chunk 0: layers 0 to 2, embedding\n  stage 1, chunk 0: layers 3 to 4\n"
                      "  stage 0, chunk 1: layers 5 to 7\n  stage 1, chunk 1: layers 8 to 9, head\n", text)
        self.assertFalse(os.path.lexists(self.path("m")))
        table = [(row["stage"], row["chunk"], row["layers"]) for row in self.json("plan", "hf", "m", *layout)["stages"]]
        self.assertEqual(table, [(0, 0, [0, 1, 2]), (1, 0, [3, 4]), (0, 1, [5, 6, 7]), (1, 1, [8, 9])])
        self.run_tool("convert", "hf", "m", *layout)
        self.assertIn("vpp 2", self.text("inspect", "m"))
        self.run_tool("convert", "m", "back", "--to", "hf")
        self.same("back", items)
        self.refused("no", "convert", "hf", "no", "--to", "megatron", "--pp", 2, "--vpp", 2, expect=2,
                     says=["5 = 2 x 2 + 1", "--pipeline-layout 'Et*3|t*3|t*2|t*2L'"])

    def storages(self, *parts):
        """The storages of a torch file, as bytes."""
        with zipfile.ZipFile(self.path(*parts)) as file:
            return [file.read(name) for name in file.namelist() if "/data/" in name]

    def test_b05_gate_and_up_rows_of_legacy_ranks(self):
        items = self.model()
        rows = 2 * 16                                            # bytes of a bf16 row
        for source, target, tp in (("hf", "a", 2), ("a", "b", 4), ("b", "c", 1)):
            self.run_tool("convert", source, target, "--to", "megatron-legacy", "--tp", tp)
            per_rank = 24 // tp * rows
            for rank in range(tp):
                found = self.storages(target, "release", f"mp_rank_{rank:02d}", "model_optim_rng.pt")
                for layer in range(4):
                    gate, up = (items[f"model.layers.{layer}.mlp.{name}_proj.weight"][2] for name in ("gate", "up"))
                    part = slice(rank * per_rank, (rank + 1) * per_rank)
                    self.assertEqual(found.count(gate[part] + up[part]), 1, f"{target}, rank {rank}, layer {layer}")
        self.run_tool("convert", "c", "back", "--to", "hf")
        self.same("back", items)

    def test_b57_from_layout_to_layout_and_back(self):
        items = self.model()
        steps = [("hf", "first", "megatron-legacy", 2, 2), ("first", "one", "megatron-legacy", 1, 1), ("one", "four", "megatron-legacy", 4, 1),
                 ("four", "dist", "megatron", 2, 1), ("dist", "last", "megatron-legacy", 2, 2)]
        for source, target, kind, tp, pp in steps:
            self.run_tool("convert", source, target, "--to", kind, "--tp", tp, "--pp", pp)
        for rank in ("mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_000", "mp_rank_01_001"):
            parts = ("release", rank, "model_optim_rng.pt")
            self.assertEqual(self.storages("first", *parts), self.storages("last", *parts), rank)
        self.run_tool("convert", "last", "back", "--to", "hf")
        self.same("back", items)
        for missing in ("mp_rank_01_000",):
            os.rename(self.path("last", "release", missing), self.path("elsewhere"))
            self.refused("no", "convert", "last", "no", "--to", "hf", says=[missing])


    def test_b59_optimizer_state_moves_with_its_weights(self):
        """From three stages to one and on to four ranks, through both of Megatron's forms: moments, masters, counters and the
        optimizer's settings arrive unchanged."""
        self.run_tool("demo", "demo")
        items = checkpoint.read(self.path("demo", "full-state"))
        self.assertEqual({name.split("/")[1] for name in items if name.startswith("optim/")}, {"master", "adam_mu", "adam_nu"})
        self.assertIn("meta/adam_count", items)
        settings = ["--set", "lr=0.0625", "--set", "min_lr=0.03125", "--set", "weight_decay=0.125"]
        self.run_tool("convert", "demo/full-state", "three", "--to", "megatron", "--pp", 3, "--pipeline-layers", "2,1,1", *settings)
        before = "three"
        for number, (kind, words) in enumerate([("megatron", []), ("megatron-legacy", ["--pp", 3, "--pipeline-layers", "1,1,2"]), ("megatron-legacy", ["--pp", 1]),
                                                ("megatron", ["--tp", 2, "--pp", 2])]):
            self.run_tool("convert", before, f"step{number}", "--to", kind, *words, "--require-optim")
            before = f"step{number}"
        self.run_tool("convert", before, "back", "--to", "full-state", "--require-optim")
        self.same("back", items)
        # The settings of the run, which a full state of the demo does not hold, came through all of them.
        line = self.json("convert", before, "again", "--to", "megatron")["load"]
        for words in ("--lr 0.0625", "--min-lr 0.03125", "--weight-decay 0.125"):
            self.assertIn(words, str(line))

    def test_b34_the_padding_of_a_megatron_source_stays(self):
        items = self.model()
        self.run_tool("convert", "hf", "m", "--to", "megatron", "--tp", 2, "--padded-vocab-size", 56)
        text = self.text("convert", "m", "again", "--to", "megatron", "--tp", 4, "--no-optim", "--hf-template", "hf")
        self.assertIn("keeps the source's 56 rows; those from 50 on are padding and become zeros", text)
        self.run_tool("convert", "again", "back", "--to", "hf")
        self.same("back", items)
        for words, rows in ((["--make-vocab-size-divisible-by", 128], 128), (["--padded-vocab-size", 64], 64)):
            self.assertIn(f"padded from 50 to {rows} rows", self.text("plan", "m", "out", "--to", "megatron", *words))


    def test_b34_computed_padding_is_computed_anew_for_another_tp(self):
        items = self.model()
        self.run_tool("convert", "hf", "m", "--to", "megatron", "--tp", 2)
        for kind in ("megatron", "megatron-legacy"):
            text = self.text("convert", "m", kind, "--to", kind, "--tp", 4)
            self.assertIn("512 rows, as Megatron pads it for 4 tensor-parallel ranks, and not 256", text)
            self.run_tool("convert", kind, f"{kind}-hf", "--to", "hf")
            self.same(f"{kind}-hf", items)
        # As the hub's road makes it, and as a conversion from the model itself does.
        self.run_tool("convert", "m", "hub", "--to", "megatron-legacy", "--tp", 4, "--make-vocab-size-divisible-by", 128)
        self.run_tool("convert", "hf", "direct", "--to", "megatron-legacy", "--tp", 4)
        for rank in range(4):
            parts = ("release", f"mp_rank_{rank:02d}", "model_optim_rng.pt")
            self.assertEqual(self.storages("megatron-legacy", *parts), self.storages("direct", *parts), rank)
            self.assertEqual(self.storages("hub", *parts), self.storages("direct", *parts), rank)

    def test_set_against_the_tensors_is_refused_from_megatron_too(self):
        self.megatron("m")
        self.refused("out", "convert", "m", "out", "--to", "megatron", "--tp", 2, "--set", "num_layers=77", says=["num_layers", "77"], expect=2)
        done = self.json("convert", "m", "set", "--to", "megatron", "--set", "rotary_seq_len_interpolation_factor=2")
        self.assertIn("--rotary-seq-len-interpolation-factor 2", str(done["load"]))


class Consumers(Case):
    def test_megatron_bridge_loads_iteration_zero(self):
        items = self.model()
        self.run_tool("convert", "hf", "m", "--to", "megatron", "--for", "megatron-bridge", "--tp", 2)
        self.assertTrue(os.path.isdir(self.path("m", "iter_0000000")))
        with open(self.path("m", "latest_checkpointed_iteration.txt"), encoding="utf-8") as tracker:
            self.assertEqual(tracker.read().strip(), "0")
        self.run_tool("convert", "m", "back", "--to", "hf")
        self.same("back", items)
        self.refused("out", "convert", "hf", "out", "--to", "megatron-legacy", "--for", "megatron-bridge", says=["Megatron-Bridge", "legacy"], expect=2)
        self.refused("out", "convert", "hf", "out", "--to", "megatron", "--for", "megatron-bridge@0.4", says=["versions of megatron-bridge"])
        self.refused("out", "convert", "hf", "out", "--to", "hf", "--for", "megatron-lm", says=["--for megatron-lm", "`hf`"], expect=2)

    def test_names_of_maxtext_models(self):
        items = self.model()
        self.run_tool("convert", "hf", "m", "--to", "maxtext", "model_name=llama3.1-8b", "--dtype", "bf16")
        self.run_tool("convert", "m", "back", "--to", "hf", "--hf-template", "hf")
        self.same("back", items)
        self.refused("out", "convert", "hf", "out", "--to", "maxtext", "model_name=llama9-8b", says=["llama9-8b", "`llama3-8b`", "`llama3.1-70b`"], expect=2)
        self.refused("out", "convert", "hf", "out", "--to", "maxtext", "model_name=falcon-7b", says=["falcon-7b", "crossdock families"], expect=2)

    def test_options_of_another_format_are_refused(self):
        self.model()
        for to, words, says in (("megatron", ["--max-shard-size", "1MB"], "--max-shard-size"), ("megatron-legacy", ["--fp8-max-shard-size-mb", 5], "--max-shard-size"),
                                ("hf", ["--compression", "none"], "--compression"), ("hf", ["--opt-type", "adamw"], "--opt-type")):
            self.refused("out", "convert", "hf", "out", "--to", to, *words, says=[says, f"`{to}`"], expect=2)


class Casts(Case):
    def test_values_that_a_cast_cannot_hold(self):
        items = self.model("plain")
        name = "model.layers.1.mlp.up_proj.weight"
        dtype, shape, data = items[name]
        # 2^127, and an infinity that was there before: only the first is made by the cast.
        items[name] = (dtype, shape, data[:10] + bytes([0x00, 0x7F]) + bytes([0x80, 0x7F]) + data[14:])
        checkpoint.write(self.path("hf"), items=items)
        for target in ("hf", "full-state", "megatron"):
            self.refused("out", "convert", "hf", "out", "--to", target, "--dtype", "fp16", says=["F16", "infinite", "mlp.", "--allow nonfinite"])
        self.assertEqual(sorted(os.listdir(self.root)), ["hf", "plain"])
        text = self.text("convert", "hf", "out", "--to", "hf", "--dtype", "fp16", "--allow", "nonfinite")
        self.assertIn("1 values became infinite", text)
        self.assertEqual(checkpoint.read(self.path("out"))[name][2][10:14], bytes([0x00, 0x7C, 0x00, 0x7C]))
        self.run_tool("convert", "hf", "wide", "--to", "hf", "--dtype", "fp32")   # what fits is nobody's business


class Completeness(Case):
    def test_b45_a_checkpoint_smaller_than_the_reference(self):
        items = self.model()
        shutil.rmtree(os.path.join(self.megatron(), "release", "hf"))
        checkpoint.write(self.path("large"), checkpoint.config(num_hidden_layers=6, intermediate_size=48))
        text = self.text("convert", "m", "out", "--to", "hf", "--hf-template", "large")
        self.same("out", items)
        written = checkpoint.read_json(self.path("out"), "config.json")
        self.assertEqual((written["num_hidden_layers"], written["intermediate_size"]), (4, 24))
        self.assertIn("num_hidden_layers 6 -> 4", text)
        self.assertIn("intermediate_size 48 -> 24", text)

    def test_b46_the_index_names_a_shard_that_is_missing(self):
        checkpoint.write(self.path("hf"), shards=3)
        index = checkpoint.read_json(self.path("hf"), "model.safetensors.index.json")
        gone = "model-00002-of-00003.safetensors"
        os.remove(self.path("hf", gone))
        tensor = next(name for name, file in index["weight_map"].items() if file == gone)
        self.refused("out", "convert", "hf", "out", "--to", "full-state", says=[gone, tensor, "download"])

    def test_b46_a_numbered_set_without_index(self):
        checkpoint.write(self.path("hf"), shards=3)
        os.remove(self.path("hf", "model.safetensors.index.json"))
        os.remove(self.path("hf", "model-00003-of-00003.safetensors"))
        self.refused("out", "convert", "hf", "out", "--to", "full-state", says=["model-00003-of-00003.safetensors"])

    def test_b47_stray_files_beside_the_indexed_ones(self):
        items = checkpoint.write(self.path("hf"), shards=2)
        checkpoint.write_file(self.path("hf", "consolidated.safetensors"), {"tok_embeddings.weight": ("BF16", [1], b"\0\0")})
        text = self.text("convert", "hf", "out", "--to", "hf")
        self.assertIn("consolidated.safetensors", text)
        self.same("out", items)

    def test_b47_two_candidates_and_no_index(self):
        items = self.model()
        checkpoint.write_file(self.path("hf", "other.safetensors"), items)
        message = self.refused("out", "convert", "hf", "out", "--to", "full-state", says=["model.safetensors", "other.safetensors"])
        self.assertIn("hint: ", message)

    def test_b51_nothing_written_is_never_success(self):
        self.model()
        os.makedirs(self.path("empty"))
        checkpoint.write_json(self.path("empty", "config.json"), checkpoint.CONFIG)
        self.refused("out", "convert", "empty", "out", "--to", "full-state")
        checkpoint.write(self.path("hollow"), items={})
        self.refused("out", "convert", "hollow", "out", "--to", "full-state")
        # /proc takes no directories, whoever asks.
        self.refused(None, "convert", "hf", "/proc/crossdock-case", "--to", "full-state", expect=4, says=["/proc"])
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([PROGRAM, "inspect", "hf"], cwd=self.root, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("opened again and counted", self.text("convert", "hf", "out", "--to", "full-state"))

    def test_b72_a_data_file_is_missing(self):
        step = os.path.join(self.megatron("m", "hf", "--tp", 2), "release")
        gone = sorted(name for name in os.listdir(step) if name.endswith(".distcp"))[-1]
        os.remove(os.path.join(step, gone))
        self.refused("out", "convert", "m", "out", "--to", "hf", says=[gone, ".weight", "bytes "])


class SideFilesAndConfig(Case):
    def test_b116_side_files_travel_byte_for_byte(self):
        self.model()
        files = {"chat_template.jinja": b"{{ x }}\r\n", "generation_config.json": b'{"b":1,\n"a": 2}', "preprocessor_config.json": b"{}",
                 "modeling_own.py": b"# \xff code\n", "LICENSE": b"free\n", "vocab.txt": b"a\nb"}
        for name, data in files.items():
            with open(self.path("hf", name), "wb") as out:
                out.write(data)
        files["tokenizer.json"] = checkpoint.TOKENIZER
        text = self.text("convert", "hf", "out", "--to", "hf")
        self.run_tool("convert", "hf", "m", "--to", "megatron")
        self.run_tool("convert", "m", "back", "--to", "hf")
        for folder in ("out", "back"):
            for name, data in files.items():
                with open(self.path(folder, name), "rb") as file:
                    self.assertEqual(file.read(), data, name)
                self.assertIn(name, text)
        checkpoint.write(self.path("bare"), tokenizer=False)
        self.assertRegex(self.text("convert", "bare", "bare-out", "--to", "hf"), "(?i)no tokenizer")

    def test_b117_values_of_the_checkpoint_win_over_the_reference(self):
        self.model("hf", rope_theta=500000.0, rms_norm_eps=1e-06, max_position_embeddings=128)
        shutil.rmtree(os.path.join(self.megatron(), "release", "hf"))
        checkpoint.write(self.path("reference"))
        text = self.text("convert", "m", "out", "--to", "hf", "--hf-template", "reference")
        written = checkpoint.read_json(self.path("out"), "config.json")
        self.assertEqual(written.get("rope_theta", written.get("rope_parameters", {}).get("rope_theta")), 500000)
        self.assertEqual((written["rms_norm_eps"], written["max_position_embeddings"]), (1e-06, 128))
        for key in ("rope_theta", "rms_norm_eps", "max_position_embeddings"):
            self.assertIn(key, text)

    def test_b117_an_unknown_rotary_scaling_is_refused(self):
        self.model("hf", rope_scaling={"rope_type": "spiral", "factor": 2.0})
        self.refused("m", "convert", "hf", "m", "--to", "megatron", says=["spiral"])

    def test_a_template_of_another_family_is_refused(self):
        self.run_tool("demo", "demo")
        self.megatron("m", "demo/full-state")
        checkpoint.write(self.path("llama"))
        for source in ("demo/hf", "demo/full-state", "m"):
            self.refused("out", "convert", source, "out", "--to", "hf", "--hf-template", "llama", "--verify",
                         says=["the template is a llama, the source a qwen3"], expect=2)

    def test_verify_takes_each_side_for_what_it_says(self):
        self.run_tool("demo", "demo")
        shutil.copytree(self.path("demo", "hf"), self.path("llama"))
        config = checkpoint.read_json(self.path("llama"), "config.json")
        config.update(model_type="llama", architectures=["LlamaForCausalLM"])
        with open(self.path("llama", "config.json"), "w", encoding="utf-8") as out:
            json.dump(config, out)
        done = self.run_tool("verify", "demo/hf", "llama", expect=1)
        self.assertIn('model_type: "qwen3" against "llama" (changes the output)', done.stdout)
        self.model("a")
        self.model("b", architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=None)
        self.assertIn("A is llama, B is mistral", self.run_tool("verify", "a", "b", expect=1).stdout)
        self.megatron("m", "b")
        shutil.rmtree(self.path("m", "release", "hf"))
        for pair in (("m", "b"), ("b", "m")):  # a guess gives way to what config.json says
            self.assertNotIn("A is", self.run_tool("verify", *pair).stdout)

    def test_verify_lists_what_b_lacks(self):
        items = self.model("a")
        shutil.copytree(self.path("a"), self.path("b"))
        gone = sorted(items)[3]
        checkpoint.write_file(self.path("b", "model.safetensors"), {name: item for name, item in items.items() if name != gone})
        self.run_tool("verify", "a", "b", "--report", "report.json", expect=1)
        self.assertEqual(checkpoint.read_json(self.path("report.json"))["missing_keys"], [gone])
        self.refused("m", "convert", "b", "m", "--to", "megatron", says=["1 tensors of the model are missing"])

    def test_b128_equal_weights_and_another_model(self):
        self.model("a")
        self.model("b", rope_theta=50000.0, eos_token_id=7)
        with open(self.path("b", "tokenizer.json"), "ab") as out:
            out.write(b"\n")
        done = self.run_tool("verify", "a", "b", "--report", "report.json", expect=1)
        self.assertIn("equal tensors, but the configuration changes the output", done.stdout)
        report = checkpoint.read_json(self.path("report.json"))
        self.assertEqual((report["passed"], report["num_different"]), (False, 0))
        keys = [row["key"] for row in report["config_differences"]]
        self.assertEqual(keys[0], "rope_theta", "the most consequential difference comes first")
        self.assertIn("eos_token_id", keys)
        self.assertIn("tokenizer.json", keys)

    def test_b130_inspect_tells_every_format_from_headers(self):
        self.model()
        self.run_tool("demo", "demo")
        self.megatron("m", "demo/full-state", "--tp", 2, "--pp", 2)
        counts = {}
        for path, kind in (("demo/hf", "hf"), ("demo/full-state", "full-state"), ("m", "megatron")):
            report = self.json("inspect", path)
            self.assertEqual((report["format"], report["family"], report["consistent"]), (kind, "qwen3", True))
            for key in ("step", "slots", "keys", "layout", "files", "parameters", "notices"):
                self.assertIn(key, report)
            counts[kind] = report["parameters"]
        self.assertEqual(len(set(counts.values())), 1, counts)
        report = self.json("inspect", "m")
        self.assertEqual((report["step"], report["layout"]["tp"], report["layout"]["pp"]), (20, 2, 2))
        config = checkpoint.config(num_hidden_layers=5)
        checkpoint.write_json(self.path("hf", "config.json"), config)
        report = self.json("inspect", "hf", expect=3)
        self.assertFalse(report["consistent"])
        self.assertIn("layers.4", " ".join(report["problems"]))


class OldFormats(Case):
    def zarr(self):
        """What megatron-core 0.12.1 wrote, and what it holds (see tests/golden/zarr)."""
        golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "zarr")
        shutil.copytree(os.path.join(golden, "old_0_12"), self.path("zarr"))
        return checkpoint.read_json(golden, "expected.json")["old_0_12"]["hub"]

    def expect(self, folder, hub):
        found = {name: {"dtype": dtype, "shape": shape, "sha256": hashlib.sha256(data).hexdigest()}
                 for name, (dtype, shape, data) in checkpoint.read(self.path(folder)).items() if not name.startswith("meta/")}
        self.assertEqual(sorted(found), sorted(hub))
        for name, tensor in hub.items():
            self.assertEqual(found[name], tensor, name)

    def test_b74_zarr_is_read_like_torch_dist(self):
        hub = self.zarr()
        report = self.json("inspect", "zarr")
        self.assertEqual((report["format"], report["step"], report["optimizer"], report["layout"]["tp"]), ("megatron-zarr", 20, "adam", 2))
        self.run_tool("convert", "zarr", "full", "--to", "full-state", "--verify")
        self.expect("full", hub)
        self.run_tool("convert", "zarr", "hf", "--to", "hf")
        self.expect("hf", {name.removeprefix("param/"): tensor for name, tensor in hub.items() if name.startswith("param/")})
        # Into today's format without a family, and on from there.
        self.run_tool("convert", "zarr", "m", "--to", "megatron", "--tp", 4)
        self.run_tool("convert", "m", "again", "--to", "full-state")
        self.expect("again", hub)

    def test_b74_a_missing_chunk_is_refused_and_named(self):
        self.zarr()
        key = "decoder.layers.mlp.linear_fc1.weight"
        os.remove(self.path("zarr", "iter_0000020", key, "1.3.0"))
        self.refused("out", "convert", "zarr", "out", "--to", "hf", says=[key, "`1.3.0`", "not made up", "hint: "])


if __name__ == "__main__":
    main()
