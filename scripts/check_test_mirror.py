#!/usr/bin/env python3
"""tests/unit mirrors src: every tests/unit/<room>/<name>_test.cc tests a <name>.cc, <name>.h or folder of that room."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main() -> int:
    errors = []
    for path in sorted((ROOT / "tests" / "unit").rglob("*_test.cc")):
        relative = path.relative_to(ROOT / "tests" / "unit")
        stem = path.name[: -len("_test.cc")]
        places = [ROOT / "src" / relative.parent, ROOT / "include" / "crossdock"]
        if not any((p / f"{stem}{end}").exists() for p in places for end in (".cc", ".h", "")):
            errors.append(f"tests/unit/{relative}: nothing called `{stem}` in src/{relative.parent}")
    rooms = [p.name for p in (ROOT / "src").iterdir() if p.is_dir() and p.name != "cli"]
    for room in sorted(rooms):
        if not any((ROOT / "tests" / "unit" / room).rglob("*_test.cc")):
            errors.append(f"src/{room}: no unit test")
    print("\n".join(errors) if errors else "the unit tests mirror the rooms")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
