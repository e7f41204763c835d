"""What docs/guides/post-training.md shows is run, in its order."""
import pathlib
import sys

import tool

tool.package()
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))

from documents import code_of


def test_what_the_guide_shows_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = compile(code_of("docs/guides/post-training.md"), "post-training.md", "exec")
    exec(code, {"__name__": "guide"})
