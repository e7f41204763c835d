#!/usr/bin/env python3
"""Who may include whom: fails when a file of src/ includes a room that its row does not allow (ARCHITECTURE.md).

A room may include itself, the rooms of its row and what those may include. Public headers (crossdock/...) are open to
all; the command line may use nothing else.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

ALLOWED = {
    "base": [],
    "tensor": ["base"],
    "io": ["base"],
    "expr": ["tensor"],
    "layout": ["tensor"],
    "kernels": ["tensor"],
    "quantize": ["tensor", "kernels"],
    "formats/pickle": ["tensor", "io"],
    "formats/torch_zip": ["tensor", "io", "formats/pickle"],
    "formats/safetensors": ["tensor", "io", "formats/format"],
    "formats/dcp": ["tensor", "io", "formats/format", "formats/pickle", "formats/safetensors", "formats/torch_zip"],
    "formats/mp_rank": ["tensor", "io", "formats/format", "formats/pickle", "formats/torch_zip", "formats/dcp"],
    "formats/torch_bin": ["tensor", "io", "formats/format", "formats/safetensors", "formats/torch_zip"],
    "formats/zarr": ["tensor", "io", "formats/format", "formats/dcp"],
    "formats/ocdbt": ["tensor", "io"],
    "formats/orbax": ["tensor", "io", "formats/format", "formats/dcp", "formats/ocdbt", "formats/zarr"],
    "formats/live": ["tensor", "io", "formats/format"],
    "formats/format": ["tensor", "io"],
    "formats": ["tensor", "io", "formats/format", "formats/safetensors", "formats/dcp", "formats/mp_rank", "formats/torch_bin", "formats/torch_zip", "formats/zarr", "formats/orbax"],
    "family": ["expr"],
    "dialects": ["family", "layout", "expr"],
    "dialects/hf": ["family", "layout", "dialects"],
    "dialects/mcore": ["family", "layout", "dialects", "dialects/hf"],
    "dialects/maxtext": ["family", "dialects", "dialects/hf"],
    "dialects/tunix": ["family", "dialects", "dialects/hf", "dialects/maxtext"],
    "plan": ["expr", "layout"],
    "execute": ["plan", "io", "quantize", "kernels", "formats/format"],
    "verify": ["io", "formats/format", "dialects", "kernels"],
    "convert": ["*"],
    "cli": [],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def room_of(path: str) -> str:
    """The room of a path below src/: a folder of two levels in formats/ and dialects/, else of one."""
    parts = path.split("/")
    if parts[0] in ("formats", "dialects"):
        if len(parts) > 2:
            return "/".join(parts[:2])
        if path in ("formats/format.h", "formats/placed_reader.h"):
            return "formats/format"
    return parts[0]


def closure(room: str) -> set[str]:
    reached, todo = set(), [room]
    while todo:
        for other in ALLOWED.get(todo.pop(), []):
            if other not in reached:
                reached.add(other)
                todo.append(other)
    return reached


def main() -> int:
    errors = []
    source = ROOT / "src"
    for path in sorted(source.rglob("*")):
        if path.suffix not in (".h", ".cc"):
            continue
        relative = path.relative_to(source).as_posix()
        room = room_of(relative)
        if room not in ALLOWED:
            errors.append(f"src/{relative}: the room `{room}` has no row in scripts/check_includes.py")
            continue
        allowed = closure(room)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match or match[1].startswith("crossdock/"):
                continue
            other = room_of(match[1])
            if not (source / match[1]).exists():
                continue  # a generated or third-party header
            if other != room and "*" not in allowed and other not in allowed:
                errors.append(f"src/{relative}:{number}: `{room}` must not include `{other}` ({match[1]})")
    for path in sorted((ROOT / "python").rglob("*")):
        if path.suffix not in (".h", ".cc"):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if match and not match[1].startswith(("crossdock/", "bindings/")):
                errors.append(f"{path.relative_to(ROOT)}:{number}: the bindings must not include {match[1]}, only the public API")
    for path in sorted((ROOT / "include").rglob("*.h")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if match and not match[1].startswith("crossdock/"):
                errors.append(f"{path.relative_to(ROOT)}:{number}: the public API must not include {match[1]}")
    print("\n".join(errors) if errors else "every include follows the table")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
