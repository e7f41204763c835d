#!/usr/bin/env python3
"""The support table of docs/reference/families.md, made of what `crossdock families --json` says.

    scripts/families_table.py CROSSDOCK            writes the table between its marks
    scripts/families_table.py CROSSDOCK --check    exit 1 when the page says something else
"""
import json
import pathlib
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs/reference/families.md"
BEGIN, END = "<!-- table: scripts/families_table.py -->\n", "<!-- end of the table -->\n"


def cell(family, dialect, judges):
    """What the family has in a dialect, and who judged it."""
    if dialect not in family["dialects"]:
        return "refused"
    said = [(judge, family["verified"][judge]) for judge in judges if judge in family["verified"]]
    names = family["megatron_names"] if dialect == "mcore" else []
    if not said:
        return "yes" + (": " + ", ".join(names) if names else "")
    return "; ".join((f"`{judge}`: " if judge in names else "") + what for judge, what in said)


def table(families):
    lines = ["| family | models | Megatron | MaxText | Hugging Face names (hf, full-state, dcp) | operations |", "|---|---|---|---|---|---|"]
    for family in families:
        lines.append("| " + " | ".join((family["name"], family["models"], cell(family, "mcore", ("megatron", "megatron-bridge", "loongforge")), cell(family, "maxtext", ("maxtext",)),
                                        cell(family, "hf", ("hf",)), " ".join(f"`{name}`" for name in family["operations"]))) + " |")
    return "\n".join(lines) + "\n"


def main():
    said = json.loads(subprocess.run([sys.argv[1], "families", "--json"], check=True, capture_output=True, text=True).stdout)
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    wanted = before + BEGIN + table(said["families"]) + END + after
    if "--check" not in sys.argv[2:]:
        PAGE.write_text(wanted)
    elif wanted != text:
        print(f"{PAGE} is not what `crossdock families` says: run {sys.argv[0]} {sys.argv[1]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
