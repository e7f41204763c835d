"""Fixtures of the oracle suite. Directories made once serve many tests: a process start and a save cost seconds."""
import functools
import json
import os
import pathlib
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TQDM_DISABLE", "1")
sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import pytest

import tool

tool.add_folders_beside()


class Workshop:
    """What real libraries made, by case; made on first use."""

    def __init__(self, root):
        self.root = root
        self.count = 0

    def fresh(self, name):
        self.count += 1
        return self.root / f"{self.count:03d}-{name}"

    @functools.cache
    def hf(self, case, dtype="bfloat16"):
        """(directory, config, tensors) by save_pretrained."""
        import models
        import torch
        target = self.root / f"hf-{case}-{dtype}"
        config, tensors = models.write(case, target, getattr(torch, dtype))
        return target, config, tensors

    @functools.cache
    def hf_logits(self, case):
        import models
        return models.logits(self.hf(case)[0])

    @functools.cache
    def full_state(self, case):
        """(directory, config, parameters, Adam's state) in the tool's own schema, written by save_file."""
        import full_state
        directory, config, tensors = self.hf(case)
        target = self.root / f"full-{case}"
        state = full_state.write(target, case, config, tensors)
        return target, config, tensors, state

    @functools.cache
    def megatron(self, case, layout, optimizer=True, common=False, **more):
        """(run root, step, config, parameters, state) by training's save_checkpoint."""
        import mcore_write
        import models
        from reference import slots_of
        config, parameters = models.parameters(case)
        state = slots_of(parameters) if optimizer else None
        root = self.root / f"megatron-{case}-{layout}-{optimizer}-{common}{len(more)}"
        step = mcore_write.save(root, config, parameters, layout, state, common=common, **more)
        return root, step, config, parameters, state


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "ignore::UserWarning")
    config.addinivalue_line("filterwarnings", "ignore::FutureWarning")
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning")


@pytest.fixture(scope="session")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("oracle"))
