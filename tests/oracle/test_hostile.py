"""The hostile torch files of tests/corrupt/hostile, judged by torch itself: what it refuses with weights_only=True we never
take, and where we refuse what it takes the reason is written down."""
import os
import sys

import pytest

import tool

tool.require()

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "corrupt", "hostile"))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "cases"))
import checkpoint  # noqa: E402
import torch_cases  # noqa: E402

ITEMS = checkpoint.tensors(checkpoint.config(num_hidden_layers=1))
# Files on which torch uses memory or time without bound, or that end its process: only our verdict is asked for.
NOT_FOR_TORCH = {"pickle_deep_tuples", "pickle_deep_lists", "pickle_many_marks", "pickle_billion_laughs", "zip_deflate_bomb", "tensor_of_two_million_axes"}
CASES = [case for case in torch_cases.cases(ITEMS) if case[0] not in NOT_FOR_TORCH]


@pytest.mark.parametrize("name, wanted, data", CASES, ids=[case[0] for case in CASES])
def test_torch_takes_no_more_than_we_say(tmp_path, name, wanted, data):
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(data)
    try:
        torch.load(path, map_location="cpu", weights_only=True)
        taken = True
    except Exception:  # noqa: BLE001: whatever it raises, it has refused
        taken = False
    if wanted:
        assert taken == (name not in torch_cases.LOOSER)
    else:
        assert taken == (name in torch_cases.STRICTER)
