#!/usr/bin/env python3
"""Every file that a tests/golden/*/MANIFEST names is there, unchanged, and no other golden file lies beside it."""
import hashlib
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"
NOT_GOLDEN = {"MANIFEST", "generate.py", "README.md"}


def main() -> int:
    errors = []
    for manifest in sorted(ROOT.glob("*/MANIFEST")):
        folder, named = manifest.parent, set()
        for line in manifest.read_text().splitlines():
            if not line or line.startswith("#"):
                continue
            digest, _size, name = line.split(None, 2)
            named.add(name)
            path = folder / name
            if not path.exists():
                errors.append(f"{path}: named in the MANIFEST, not there")
            elif hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                errors.append(f"{path}: differs from the MANIFEST; golden files are never edited by hand")
        there = {p.relative_to(folder).as_posix() for p in folder.rglob("*")
                 if p.is_file() and p.name not in NOT_GOLDEN and "__pycache__" not in p.parts}
        errors += [f"{folder / name}: not in the MANIFEST" for name in sorted(there - named)]
    print("\n".join(errors) if errors else "golden files are as their makers left them")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
