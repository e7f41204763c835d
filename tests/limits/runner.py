"""How a test program of unittest runs under test.sh: CROSSDOCK names the program under test, the last line counts."""
import os
import sys
import unittest

PROGRAM = os.path.abspath(os.environ.get("CROSSDOCK", "")) if os.environ.get("CROSSDOCK") else ""


def main():
    if not PROGRAM:
        sys.exit("error: CROSSDOCK must name the program under test")
    result = unittest.main(exit=False, verbosity=2).result
    bad = len({test.id().split(" ")[0] for test, _ in result.failures + result.errors})
    print(f"{result.testsRun - bad - len(result.skipped)} passed, {bad} failed, {len(result.skipped)} skipped")
    sys.exit(1 if bad else 0)
