"""`python -m tests.support.ahead SECONDS ...`: the program, on a machine whose clock is ahead.

Everything that asks for POSIX time in this process gets another answer; the server does not know.
"""

import runpy
import sys
import time


def main() -> None:
    """Set the clock and run `python -m app` with the other arguments."""
    ahead_s = float(sys.argv.pop(1))
    right = time.time
    time.time = lambda: right() + ahead_s
    runpy.run_module("app", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
