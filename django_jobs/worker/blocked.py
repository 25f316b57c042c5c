"""Finding what keeps an event loop from turning: a call in a coroutine that blocks instead of being awaited."""

from __future__ import annotations

import logging
import sys
import sysconfig
import threading
import time
import traceback
from pathlib import Path
from traceback import FrameSummary
from typing import TYPE_CHECKING

from django_jobs import telemetry
from django_jobs.store.leases import told_of

if TYPE_CHECKING:
    from django_jobs.worker.loops import EventLoop

logger = logging.getLogger("django_jobs.worker")

BLOCKED_AFTER = 1.0  # seconds in which the loop made no turn
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class Blocked:
    """Looks at one loop, for all whose coroutines wait on it; tells each time that it stands still, once."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._asked_at: float | None = None
        self._seen: tuple[str, int] | None = None
        self._is_told = False

    def look(self) -> None:
        """Ask the loop to answer in its next turn, and tell where it stands when it has not answered for long.

        It is told at the second look that finds the same line: after a stop of the whole process, as in a debugger, the
        loop gets the time to answer.
        """
        if not self._lock.acquire(blocking=False):
            return  # somebody looks
        try:
            asked_at = self._asked_at  # the loop's thread takes it away when it answers
            if asked_at is None:
                self._asked_at = time.monotonic()  # before the loop can answer
                if not self._loop.call_soon(self._answered):
                    self._asked_at = None
            elif time.monotonic() - asked_at >= BLOCKED_AFTER and not self._is_told:
                self._look_at()
        finally:
            self._lock.release()

    def _answered(self) -> None:
        self._asked_at, self._seen, self._is_told = None, None, False

    def _look_at(self) -> None:
        owner = self._loop.owner_at_work
        frame = sys._current_frames().get(self._loop.thread.ident or 0)  # noqa: SLF001  Python documents it
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
        attempt = owner.attempt if owner is not None else None
        where = f"{own.filename}:{own.lineno}"
        if attempt is not None:
            telemetry.emit("coroutine.blocked", where=where, **told_of(attempt))
        logger.warning(
            "%s has kept its event loop from turning for more than %.1f s at %s (%s): await "
            "something else there, or call it through sync_to_async or asyncio.to_thread.",
            "A callback of a coroutine" if attempt is None else f"The coroutine of {attempt.job_type}",
            BLOCKED_AFTER,
            where,
            own.line or own.name,
        )


def _own(stack: list[FrameSummary]) -> FrameSummary:
    """Return the innermost frame that is neither Python's nor an installed package's; else the innermost of all."""
    own = (frame for frame in reversed(stack) if not frame.filename.startswith(_LIBRARIES))
    found = next((frame for frame in own if not frame.filename.startswith("<")), None)
    return found if found is not None and not found.filename.startswith(_HERE) else stack[-1]


_HERE = str(Path(__file__).parent)  # what is below everything that runs on the loop
