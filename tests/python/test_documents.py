"""The Python that the documents show is run, in their order, each document in a directory of its own."""
import subprocess
import sys

import pytest

from documents import code_of


@pytest.mark.parametrize("document", ["README.md", "docs/guides/python.md"])
def test_what_documents_show_runs(document, tmp_path):
    done = subprocess.run([sys.executable, "-c", code_of(document)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
