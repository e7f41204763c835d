"""The Python that the documents show is run, in their order, each document in a directory of its own."""
import re
import subprocess
import sys

import pytest

from conftest import ROOT


def blocks(document):
    return re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(), re.M | re.S)


@pytest.mark.parametrize("document", ["README.md", "docs/guides/python.md"])
def test_what_documents_show_runs(document, tmp_path):
    code = blocks(document)
    assert code
    done = subprocess.run([sys.executable, "-c", "\n".join(code)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
