#!/usr/bin/env python3
"""Counts test cases of one CTest run: GoogleTest's own JSON files, and CTest's JUnit file for programs without one.

Prints "PASSED FAILED SKIPPED". A program that died before writing its JSON counts as one failure.
"""
import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def main() -> int:
    folder = pathlib.Path(sys.argv[1])
    passed = failed = skipped = 0
    seen = {}
    for path in folder.glob("*.json"):
        try:
            report = json.loads(path.read_text())
        except ValueError:
            continue  # cut off: the program crashed, CTest says so below
        counts = [0, 0, 0]
        for suite in report.get("testsuites", []):
            for case in suite.get("testsuite", []):
                if case.get("failures"):
                    counts[1] += 1
                elif case.get("result") == "SKIPPED":
                    counts[2] += 1
                    print(f"skipped: {suite['name']}.{case['name']}", file=sys.stderr)
                elif case.get("status") == "RUN":
                    counts[0] += 1
        seen[path.stem] = counts
    junit = folder / "ctest.xml"
    if not junit.exists():
        print("0 1 0")
        return 0
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        name, status = case.get("name"), case.get("status")
        counts = seen.get(name)
        if counts is None:
            counts = [int(status == "run"), int(status == "fail"), int(status in ("notrun", "disabled"))]
        elif status == "fail" and counts[1] == 0:
            counts[1] = 1
        passed += counts[0]
        failed += counts[1]
        skipped += counts[2]
    print(passed, failed, skipped)
    return 0


if __name__ == "__main__":
    sys.exit(main())
