"""The installed package under test: `import crossdock` must find it, and CROSSDOCK_PREFIX is the environment that it was installed
into, alone (scripts/python_wheel.sh)."""
import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "limits"))

import pytest  # noqa: E402

import crossdock  # noqa: E402
import models  # noqa: E402

PREFIX = pathlib.Path(os.environ["CROSSDOCK_PREFIX"])


def alone(code, *words, **more):
    """Starts a program in the environment that holds nothing but the wheel."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CROSSDOCK")}
    return subprocess.Popen([PREFIX / "bin" / "python", "-c", code, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env=environment, **more)


def tool(*words):
    """The installed command; its CompletedProcess."""
    return subprocess.run([PREFIX / "bin" / "crossdock", *map(str, words)], capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "d"
    crossdock.demo(folder)
    return folder


@pytest.fixture(scope="session")
def large(tmp_path_factory):
    """3 GiB of weights that take no room: what is done with it takes long enough to be stopped."""
    folder = tmp_path_factory.mktemp("large") / "hf"
    models.write_llama(folder, layers=32)
    return folder
