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


BARE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and not name.startswith("CROSSDOCK")}


def alone(code, *words):
    """Starts a program in the environment that holds nothing but the wheel."""
    return subprocess.Popen([PREFIX / "bin" / "python", "-c", code, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env=BARE)


def tool(*words):
    """The installed command; its CompletedProcess."""
    return subprocess.run([PREFIX / "bin" / "crossdock", *map(str, words)], capture_output=True, text=True, check=False, timeout=120, env=BARE)


def visible(folder):
    """What a consumer sees in a directory: no staging, no locks."""
    return [path.name for path in folder.glob("*") if not path.name.startswith(".")]


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
