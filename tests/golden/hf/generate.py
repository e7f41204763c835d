"""A tiny Qwen3 directory by transformers' save_pretrained: two shards, index, tokenizer, chat template."""
import os
import pathlib
import shutil
import sys

os.environ["OMP_NUM_THREADS"] = "1"
here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))
sys.dont_write_bytecode = True

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from golden import seeded, tensor_info, versions, write_json, write_manifest

torch.set_num_threads(1)


def main():
    target = here / "qwen3"
    shutil.rmtree(target, ignore_errors=True)
    config = Qwen3Config(hidden_size=16, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=6, intermediate_size=20, vocab_size=50,
                         tie_word_embeddings=False, rope_theta=1e6, max_position_embeddings=64, dtype="bfloat16", bos_token_id=1, eos_token_id=2)
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            tensor.copy_(seeded(name, tensor.shape, torch.bfloat16, 0.3) + (1 if "norm" in name else 0))
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2, max_new_tokens=8)
    model.save_pretrained(target, max_shard_size="12KB")
    words = {f"w{index}": index for index in range(50)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w0", bos_token="w1", eos_token="w2")
    fast.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    fast.save_pretrained(target)
    expected = {}
    for shard in sorted(target.glob("*.safetensors")):
        shard.chmod(0o644)
        for name, tensor in load_file(shard).items():
            expected[name] = {"file": shard.name, **tensor_info(tensor)}
    write_json(here / "expected.json", expected)
    write_manifest(here, versions("torch", "transformers", "safetensors", "tokenizers"))


main()
