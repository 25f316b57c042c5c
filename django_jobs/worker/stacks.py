"""What every thread of a process is doing, on request: SIGQUIT writes the stacks to standard error, and work goes on.

Written by the interpreter's own C code, so that it also tells where a process stands that runs no Python any more.
"""

from __future__ import annotations

import faulthandler
import signal

STANDARD_ERROR = 2  # not sys.stderr: a project, or a test, may have put something there that has no descriptor


def show_on_request(*, then_python: bool = False) -> None:
    """Write all stacks at each SIGQUIT from now on; ``then_python``: and call the handler that Python has for it."""
    faulthandler.register(signal.SIGQUIT, file=STANDARD_ERROR, all_threads=True, chain=then_python)


def show_no_more() -> None:
    """Leave SIGQUIT to whoever had it before."""
    faulthandler.unregister(signal.SIGQUIT)
