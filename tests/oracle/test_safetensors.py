"""Malformed and odd safetensors: the reference library's verdict as written in the table, and the tool's."""
import pytest

import malformed
import tool

CASES = list(malformed.cases())


def test_table_is_large_and_names_are_unique():
    assert len(CASES) >= 90 and len({name for name, *_ in CASES}) == len(CASES)


def test_reference_says_what_the_table_says(tmp_path):
    """Two ways into the library, which must agree: by bytes and by file."""
    import safetensors
    wrong = []
    for name, data, reference, _ in CASES:
        path = tmp_path / "x.safetensors"
        path.write_bytes(data)
        verdicts = []
        for read in (lambda: safetensors.deserialize(data), lambda: safetensors.safe_open(path, "pt").__enter__().keys()):
            try:
                read()
                verdicts.append(True)
            except Exception as error:
                verdicts.append(False)
        if verdicts != [reference, reference]:
            wrong.append(f"{name}: table {reference}, library {verdicts}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.skipif(not tool.BINARY, reason="CROSSDOCK is not set")
@pytest.mark.parametrize("name,data,ours", [(name, data, ours) for name, data, _, ours in CASES], ids=[name for name, *_ in CASES])
def test_ours(tmp_path, name, data, ours):
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    text = tool.run("inspect", path, expect=(0, 3) if ours is None else 0 if ours else 3)
    if ours is False:
        assert "model.safetensors" in text, f"the message does not name the file: {text}"
    assert "\0" not in text, "a tensor's name is printed raw"
