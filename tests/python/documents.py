"""What Python a document shows."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def code_of(document):
    """Its blocks of Python as one program, in their order."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(), re.M | re.S)
    assert blocks
    return "\n".join(blocks)
