#!/usr/bin/env python3
"""Cases from users' daily life about FP8 export: each test carries the number of its case. Codes and scales are worked out once more here,
in plain Python, from what the format says.

Needs only Python and CROSSDOCK, the program under test. Cases that need the real libraries are in tests/oracle."""
import bisect
import math
import os
import struct
import sys

sys.path.insert(0, os.path.dirname(__file__))
import checkpoint  # noqa: E402
from case import Case, main  # noqa: E402

# The value of every code from 0x00 to 0x7E: one sign, four bits of exponent (bias 7), three of mantissa.
VALUES = [(code & 7) * 2.0 ** -9 if code < 8 else (8 + (code & 7)) * 2.0 ** ((code >> 3) - 10) for code in range(0x7F)]


def single(value):
    """Rounded to float32. A quotient of two float32 that was rounded to double first gives the same."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def code_of(value):
    sign = 0x80 if math.copysign(1, value) < 0 else 0
    size = min(abs(value), 448.0)
    above = bisect.bisect_left(VALUES, size)
    if above == 0:
        return sign
    below = above - 1
    low, high = size - VALUES[below], VALUES[above] - size
    return sign | (below if low < high or (low == high and below % 2 == 0) else above)


def quantized(shape, data, rows, cols):
    """(codes, scales) of bf16 bytes."""
    height, width = shape
    values = [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    codes, scales = bytearray(height * width), []
    for top in range(0, height, rows):
        for left in range(0, width, cols):
            places = [r * width + c for r in range(top, min(top + rows, height)) for c in range(left, min(left + cols, width))]
            scale = single(max(max(abs(values[p]) for p in places), single(1e-12)) / 448)
            scales.append(scale)
            for p in places:
                codes[p] = code_of(single(values[p] / scale))
    return bytes(codes), b"".join(struct.pack("<f", scale) for scale in scales)


def bf16(values):
    return b"".join(struct.pack("<f", value)[2:] for value in values)


class Fp8(Case):
    def check(self, target, source, rows=128, cols=128):
        """Every weight against this file's own arithmetic; returns (what is FP8, what is not) and the configuration."""
        found, said = checkpoint.read(self.path(target)), checkpoint.read_json(self.path(target), "config.json")["quantization_config"]
        codes = {name for name, (dtype, _, _) in found.items() if dtype == "F8_E4M3"}
        for name, (dtype, shape, data) in source.items():
            if name not in codes:
                self.assertEqual(found[name], (dtype, shape, data), name)
                continue
            q, s = quantized(shape, data, rows, cols)
            self.assertEqual(found[name][1:], (shape, q), name)
            grid = [-(-shape[0] // rows), -(-shape[1] // cols)]
            self.assertEqual(found[name + "_scale_inv"], ("F32", grid, s), name)
        self.assertEqual(sorted(found), sorted(set(source) | {name + "_scale_inv" for name in codes}))
        return codes, set(source) - codes, said

    def test_b91_blocks_of_zeros_and_of_tiny_values(self):
        items = checkpoint.tensors(checkpoint.CONFIG)
        down, up, o = (f"model.layers.0.{part}.weight" for part in ("mlp.down_proj", "mlp.up_proj", "self_attn.o_proj"))
        items[down] = ("BF16", [16, 24], bf16([0.0, -0.0] * 192))
        items[up] = ("BF16", [24, 16], bf16([2.0 ** -133 * (i % 3 - 1) for i in range(384)]))   # denormals
        items[o] = ("BF16", [16, 16], bf16([(1e-14 if i % 2 else -3e-12) for i in range(256)]))
        self.model_of(items)
        self.run_tool("convert", "hf", "out", "--to", "hf", "--fp8")
        self.check("out", items)
        found = checkpoint.read(self.path("out"))
        for name, (dtype, _, data) in found.items():
            if dtype == "F8_E4M3":
                self.assertFalse(any(code & 0x7F == 0x7F for code in data), f"{name} has NaN codes")
        self.assertEqual(found[down][2], b"\x00\x80" * 192)
        self.assertEqual(struct.unpack("<f", found[down + "_scale_inv"][2])[0], single(single(1e-12) / 448))
        self.assertEqual(set(found[up][2]), {0x00, 0x80})

    def model_of(self, items, **changes):
        return checkpoint.write(self.path("hf"), checkpoint.config(**changes), items)

    def test_b92_shapes_that_blocks_do_not_divide(self):
        """576 x 256, 200 x 130 and 1 x 128, and all that goes with them in a model."""
        # 4 heads of 50 over 130 give 200 x 130; a feed-forward of 576 over 256; one head of one over 128.
        for number, changes in enumerate((dict(hidden_size=130, num_attention_heads=4, num_key_value_heads=2, head_dim=50, intermediate_size=40),
                                          dict(hidden_size=256, num_attention_heads=1, num_key_value_heads=1, head_dim=16, intermediate_size=576),
                                          dict(hidden_size=128, num_attention_heads=1, num_key_value_heads=1, head_dim=1, intermediate_size=8))):
            config = checkpoint.config(num_hidden_layers=1, **changes)
            items = checkpoint.tensors(config)
            shapes = [shape for _, shape, _ in items.values()]
            self.assertIn([[200, 130], [576, 256], [1, 128]][number], shapes)
            checkpoint.write(self.path(f"hf{number}"), config, items)
            text = self.text("quantize", f"hf{number}", f"out{number}")
            self.check(f"out{number}", items)
            self.assertIn("partial block: ", text)
            self.assertIn("--fp8 channel", text)
        self.run_tool("quantize", "hf0", "small", "--block-size", "64", "16")
        self.check("small", checkpoint.read(self.path("hf0")), 64, 16)

    def test_b97_the_list_of_what_is_not_quantized(self):
        items = self.model()
        for number, words in enumerate(([], ["--fp8-skip", "model.layers.2.*"], ["--fp8-only", "*.down_proj"])):
            self.run_tool("convert", "hf", f"out{number}", "--to", "hf", "--fp8", *words)
            codes, plain, said = self.check(f"out{number}", items)
            listed = said["modules_to_not_convert"]
            self.assertEqual(listed, sorted(set(listed)))
            for name in plain:
                if len(items[name][1]) == 2:
                    self.assertIn(name.removesuffix(".weight"), listed)
            for name in codes:
                self.assertNotIn(name.removesuffix(".weight"), listed)
            self.assertEqual(len(codes), [28, 21, 4][number])
            self.assertEqual({key: said[key] for key in ("quant_method", "activation_scheme", "fmt", "weight_block_size")},
                             {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]})
        before, after = (checkpoint.read_json(self.path(folder), "config.json") for folder in ("hf", "out0"))
        del after["quantization_config"]
        self.assertEqual(list(after.items()), list(before.items()))

    def test_b99_routers_norms_embeddings_and_heads_stay(self):
        """Mixtral's router is `block_sparse_moe.gate`, Qwen's `mlp.gate`; `gate_proj` is no router."""
        base = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 50, "rms_norm_eps": 1e-5,
                "max_position_embeddings": 64, "num_experts_per_tok": 2, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "rope_theta": 1e4, "hidden_act": "silu"}
        shared = {"model.embed_tokens.weight": [50, 16], "model.norm.weight": [16], "lm_head.weight": [50, 16], "model.layers.0.input_layernorm.weight": [16],
                  "model.layers.0.post_attention_layernorm.weight": [16], "model.layers.0.self_attn.q_proj.weight": [16, 16], "model.layers.0.self_attn.k_proj.weight": [8, 16],
                  "model.layers.0.self_attn.v_proj.weight": [8, 16], "model.layers.0.self_attn.o_proj.weight": [16, 16]}
        layer = "model.layers.0."
        mixtral = shared | {f"{layer}block_sparse_moe.gate.weight": [3, 16]}
        qwen = shared | {f"{layer}mlp.gate.weight": [3, 16], f"{layer}self_attn.q_norm.weight": [4], f"{layer}self_attn.k_norm.weight": [4]}
        for e in range(3):
            mixtral |= {f"{layer}block_sparse_moe.experts.{e}.{part}.weight": [16, 24] if part == "w2" else [24, 16] for part in ("w1", "w2", "w3")}
            qwen |= {f"{layer}mlp.experts.{e}.{part}_proj.weight": [16, 24] if part == "down" else [24, 16] for part in ("gate", "up", "down")}
        for name, shapes, config in (
                ("mixtral", mixtral, base | {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "intermediate_size": 24, "num_local_experts": 3}),
                ("qwen", qwen, base | {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "intermediate_size": 24, "moe_intermediate_size": 24, "num_experts": 3})):
            items = checkpoint.write(self.path(name), config, checkpoint.filled(shapes))
            self.run_tool("quantize", name, name + "-fp8")
            codes, plain, said = self.check(name + "-fp8", items)
            self.assertEqual(len(codes), 4 + 9)
            router = layer + ("block_sparse_moe.gate" if name == "mixtral" else "mlp.gate")
            self.assertEqual(said["modules_to_not_convert"], sorted(["lm_head", "model.embed_tokens", router]))


    def test_b97_from_every_source_the_same_bytes(self):
        self.run_tool("demo", "d")
        ways = {"full-state": ["--no-optim"], "megatron": ["--no-optim", "--tp", 2, "--pp", 2], "megatron-legacy": ["--no-optim", "--tp", 2], "maxtext": ["--no-optim"], "dcp": ["--no-optim"]}
        for to, words in ways.items():
            self.run_tool("convert", "d/full-state", to, "--to", to, "--hf-template", "d/hf", *words)
        for strategy in ("block", "channel", "tensor"):
            self.run_tool("convert", "d/hf", "hf-" + strategy, "--to", "hf", "--fp8", strategy, "--dtype", "bf16")
            expected = checkpoint.read(self.path("hf-" + strategy))
            self.assertTrue(any(dtype == "F8_E4M3" for dtype, _, _ in expected.values()))
            for source in ways:
                target = f"{source}-{strategy}"
                self.run_tool("convert", source, target, "--to", "hf", "--fp8", strategy, "--dtype", "bf16", "--hf-template", "d/hf")
                self.same(target, expected)


if __name__ == "__main__":
    main()
