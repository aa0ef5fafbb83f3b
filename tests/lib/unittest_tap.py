"""unittest_tap.py - runs the test files of a folder with unittest and prints TAP.

    unittest_tap.py FOLDER
"""
import sys
import traceback
import unittest


class Tap(unittest.TestResult):
    """The first line of a test's docstring is its sentence."""

    printed = 0  # testsRun leaves out skipped tests in some versions of Python

    def _print(self, test, word, detail=""):
        sentence = (test.shortDescription() or str(test)) + detail
        self.printed += 1
        print(f"{word} {self.printed} - {type(test).__name__}: {sentence}", flush=True)

    def addSuccess(self, test):
        self._print(test, "ok")

    def addSkip(self, test, reason):
        self._print(test, "ok", f" # SKIP {reason}")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._print(test, "not ok")
        for line in "".join(traceback.format_exception(*err)).splitlines():
            print("# " + line, flush=True)

    addError = addFailure


def main():
    suite = unittest.defaultTestLoader.discover(sys.argv[1], pattern="test_*.py")
    result = Tap()
    suite.run(result)
    print(f"1..{result.printed}")
    sys.exit(bool(result.failures))


if __name__ == "__main__":
    main()
