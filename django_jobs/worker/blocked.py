"""Finding what keeps an event loop from turning: a call in a coroutine that blocks instead of being awaited."""

from __future__ import annotations

import logging
import sys
import sysconfig
import time
import traceback
from traceback import FrameSummary

from django_jobs import telemetry
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.coroutines import Loop

logger = logging.getLogger("django_jobs.worker")

BLOCKED_AFTER = 1.0  # seconds in which the loop made no turn
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class Blocked:
    """Looks at one loop; tells each time that it stands still, once."""

    def __init__(self, attempt: RunningAttempt) -> None:
        self._attempt = attempt
        self._asked_at: float | None = None
        self._seen: tuple[str, int] | None = None
        self._is_told = False

    def look(self, loop: Loop) -> None:
        """Ask the loop to answer in its next turn, and tell where it stands when it has not answered for long.

        It is told at the second look that finds the same line: after a stop of the whole process, as in a debugger, the
        loop gets the time to answer.
        """
        if self._asked_at is None:
            self._asked_at = time.monotonic()  # before the loop can answer
            if not loop.call_soon(self._answered):
                self._asked_at = None
        elif time.monotonic() - self._asked_at >= BLOCKED_AFTER and not self._is_told:
            self._look_at(loop)

    def _answered(self) -> None:
        self._asked_at, self._seen, self._is_told = None, None, False

    def _look_at(self, loop: Loop) -> None:
        frame = sys._current_frames().get(loop.thread.ident or 0)  # noqa: SLF001  Python documents it
        if frame is None:
            return
        stack = traceback.extract_stack(frame)
        del frame  # it would keep the handler's variables
        own = _own(stack)
        seen = (own.filename, own.lineno or 0)
        if self._seen != seen:
            self._seen = seen
            return
        self._is_told = True
        attempt = self._attempt
        telemetry.emit(
            "coroutine.blocked",
            job_id=attempt.job_id,
            job_type=attempt.job_type,
            queue_name=attempt.queue_name,
            priority=attempt.priority,
            where=f"{own.filename}:{own.lineno}",
        )
        logger.warning(
            "The coroutine of %s has kept its event loop from turning for more than %.1f s at %s:%s (%s): await "
            "something else there, or call it through sync_to_async or asyncio.to_thread.",
            attempt.job_type,
            BLOCKED_AFTER,
            own.filename,
            own.lineno,
            own.line or own.name,
        )


def _own(stack: list[FrameSummary]) -> FrameSummary:
    """Return the innermost frame that is neither Python's nor an installed package's; else the innermost of all."""
    own = (frame for frame in reversed(stack) if not frame.filename.startswith(_LIBRARIES))
    found = next((frame for frame in own if not frame.filename.startswith("<")), None)
    return found if found is not None and found.filename != _HERE else stack[-1]


_HERE = Loop.__init__.__code__.co_filename  # below everything that runs on the loop
