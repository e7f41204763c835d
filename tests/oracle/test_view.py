"""`crossdock.open` beside safetensors.safe_open on what transformers saved, and on what Megatron's own save_checkpoint wrote."""
import pytest

import tool

tool.require()
crossdock = tool.package()

import torch
from safetensors import safe_open

import mcore_env as env

INDICES = [slice(None), slice(3, 11), slice(-4, None), slice(7, 7), 5, -1, (slice(2, 6), slice(1, 9)), (..., slice(0, 3)), (4, slice(None))]


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("case", ["qwen3", "llama32_tied"])
def test_a_directory_is_seen_as_by_safe_open(workshop, case):
    folder = workshop.hf(case)[0]
    seen = {}
    files = sorted(folder.glob("*.safetensors"))
    assert files
    with crossdock.open(folder, framework="pt") as view:
        for path in files:
            with safe_open(path, framework="pt") as theirs, crossdock.open(path, framework="pt", device="cpu") as ours:
                assert sorted(theirs.keys()) == ours.keys() and theirs.offset_keys() == ours.offset_keys()
                assert theirs.metadata() == ours.metadata() == view.metadata()
                for key in theirs.keys():
                    seen[key] = theirs.get_tensor(key)
                    assert same(seen[key], ours.get_tensor(key)) and same(seen[key], view.get_tensor(key))
                    a, b = theirs.get_slice(key), view.get_slice(key)
                    assert a.get_shape() == b.get_shape() and a.get_dtype() == b.get_dtype()
                    for index in INDICES:
                        if len(a.get_shape()) == 2 or not isinstance(index, tuple):
                            assert same(seen[key][index], b[index]), (key, index)
        assert view.keys() == sorted(seen)


@pytest.mark.parametrize("case, layout", [("qwen3", env.Layout(2, 2)), ("qwen2_tied", env.Layout(1, 3))], ids=str)
def test_a_run_of_megatron_is_seen_by_its_hugging_face_names(workshop, case, layout):
    root, _, _, parameters, _ = workshop.megatron(case, layout, True, layout.pp == 3)
    with crossdock.open(root, framework="pt", hf_template=workshop.hf(case)[0]) as view:
        assert view.keys() == sorted(parameters)
        for key, tensor in parameters.items():
            assert same(tensor, view.get_tensor(key)), key
            assert same(tensor[1:5], view.get_slice(key)[1:5]), key


def test_fp8_and_other_types_come_as_torchs(workshop, tmp_path):
    crossdock.quantize(workshop.hf("qwen3")[0], tmp_path / "fp8", fp8_block_size=(16, 16))
    types = set()
    with crossdock.open(tmp_path / "fp8", framework="pt") as view:
        for path in sorted((tmp_path / "fp8").glob("*.safetensors")):
            with safe_open(path, framework="pt") as theirs:
                for key in theirs.keys():
                    assert same(theirs.get_tensor(key), view.get_tensor(key)), key
                    types.add(view.get_tensor(key).dtype)
    assert torch.float8_e4m3fn in types and torch.float32 in types
    with crossdock.open(tmp_path / "fp8") as view:   # without a copy, by DLPack
        key = next(key for key in view if view.get_slice(key).get_dtype() == "F8_E4M3")
        tensor = view.get_tensor(key)
        assert torch.from_dlpack(tensor).dtype == torch.float8_e4m3fn and torch.from_dlpack(tensor).shape == tensor.shape
