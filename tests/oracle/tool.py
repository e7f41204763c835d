"""The tool under test, as a user calls it: a program found through CROSSDOCK, a command line, an exit code."""
import hashlib
import os
import pathlib
import re
import subprocess
import sys

import pytest

BINARY = os.environ.get("CROSSDOCK")


def require():
    """Skips a whole module, before it pays for its imports, when there is no program to test."""
    if not BINARY:
        pytest.skip("CROSSDOCK is not set: export CROSSDOCK=/path/to/crossdock to run this module", allow_module_level=True)
    if not os.access(BINARY, os.X_OK):
        raise RuntimeError(f"CROSSDOCK={BINARY} is not a program")


def folder_beside(name):
    """A folder that scripts/setup_test_env.sh makes beside the environment: small packages with a list of their own."""
    requirements = pathlib.Path(__file__).with_name(f"requirements-{name}.txt").read_bytes()
    return pathlib.Path(sys.prefix).parent / f"{name}-{hashlib.sha256(requirements).hexdigest()[:12]}"


def add_folders_beside():
    """Puts them on the path where they are installed. Megatron and transformers look for them once, when any test first imports them."""
    for name in ("emerging", "compressed"):
        folder = folder_beside(name)
        if folder.is_dir() and str(folder) not in sys.path:
            sys.path.append(str(folder))


def needs(name):
    """Skips a whole module where the folder is not installed."""
    if not folder_beside(name).is_dir():
        pytest.skip(f"{name} is not at {folder_beside(name)}: scripts/setup_test_env.sh makes it", allow_module_level=True)


def package():
    """The Python package as ./test.sh installed it (scripts/python_wheel.sh), from the folder that CROSSDOCK_SITE names; skips without one."""
    site = os.environ.get("CROSSDOCK_SITE")
    if site and site not in sys.path:
        sys.path.append(site)
    try:
        import crossdock
    except ImportError:
        pytest.skip("CROSSDOCK_SITE names no folder with the package: scripts/python_wheel.sh makes one", allow_module_level=True)
    return crossdock


def run(*words, expect=0, timeout=120):
    """Runs crossdock; the exit code must be `expect` (a number or several). Returns both outputs as one text."""
    command = [BINARY, *map(str, words)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, text=True, errors="replace",
                          env=os.environ | {"LC_ALL": "C"})
    text = done.stdout + done.stderr
    allowed = expect if isinstance(expect, (tuple, list, set)) else (expect,)
    assert done.returncode in allowed, f"exit {done.returncode}, expected {expect}: {' '.join(command)}\n{text[-4000:]}"
    return text


def convert(source, target, *words, expect=0):
    text = run("convert", source, target, *words, expect=expect)
    if expect != 0:
        assert not pathlib.Path(target).exists() or not any(pathlib.Path(target).iterdir()), f"refused, yet something lies at {target}"
    return text


def refused(text, *words):
    """A refusal names what it is about."""
    missing = [word for word in words if not re.search(re.escape(str(word)), text, re.IGNORECASE)]
    assert not missing, f"the message lacks {missing}:\n{text[-2000:]}"


def step_of(root):
    """The checkpoint that the tracker names; tracker and directory must agree."""
    root = pathlib.Path(root)
    name = (root / "latest_checkpointed_iteration.txt").read_text().strip()
    step = root / (name if name == "release" else f"iter_{int(name):07d}")
    assert step.is_dir(), f"the tracker says {name}, there are {sorted(path.name for path in root.iterdir())}"
    assert (step / "metadata.json").exists() and (step / ".metadata").exists()
    return step


def layout_words(layout):
    words = ["--tp", layout.tp, "--pp", layout.pp]
    words += ["--ep", layout.ep] if layout.ep > 1 else []
    words += ["--etp", layout.etp] if layout.etp else []
    if layout.first is not None:
        words += ["--first-stage-layers", layout.first]
    if layout.last is not None:
        words += ["--last-stage-layers", layout.last]
    if layout.cells:
        words += ["--pipeline-layout", layout.cells]
    elif layout.vpp:
        words += ["--vpp", layout.vpp]
    words += ["--account-for-embedding"] * layout.embedding + ["--account-for-loss"] * layout.loss
    if layout.divisor != 128:
        words += ["--make-vocab-size-divisible-by", layout.divisor]
    return words
