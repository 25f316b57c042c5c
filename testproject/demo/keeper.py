"""
Ends what the demo started when the demo itself cannot: `python -m testproject.demo.keeper`.

It reads lines from standard input, `+GROUP` for a process group that was started and `-GROUP` for one that ended. At
the end of the input, which comes however the demo dies, it kills the groups that are left.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress


def left_over(lines: Iterable[str]) -> set[int]:
    """Return the groups that were started and have not ended."""
    groups: set[int] = set()
    for line in lines:
        group = int(line[1:])
        if line.startswith("+"):
            groups.add(group)
        else:
            groups.discard(group)
    return groups


def main() -> None:
    """Wait for the end of the input and kill what is left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for group in left_over(sys.stdin):
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
