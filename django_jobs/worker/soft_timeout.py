"""Telling a handler that its budget is over: an exception inside it, at a place where it breaks nothing in two.

It comes in three ways. A handler that runs is watched by a thread, which raises the exception where the handler's own
code is at work. A handler that asks the database, or its context, gets it in place of an answer. A coroutine gets it
where it awaits.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import clock, telemetry
from django_jobs.exceptions import SOFT_TIMEOUT, SoftTimeoutError
from django_jobs.store.leases import told_of
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.blocks import Blocks
from django_jobs.worker.driven import Driven
from django_jobs.worker.places import may_interrupt, may_refuse_statement
from django_jobs.worker.soft_watch import soft_watch
from django_jobs.worker.strike import can_strike, strike, take
from django_jobs.worker.watch import watch

logger = logging.getLogger("django_jobs.worker")

T = TypeVar("T")


class SoftTimeout:
    """The soft time-out of one attempt; made in the thread that runs the handler.

    The lock decides between the watching thread and the handler's: who has told is the only one for this budget, and
    after the handler has ended nobody tells.
    """

    def __init__(self, attempt: RunningAttempt) -> None:
        self._attempt = attempt
        self._ident = threading.get_ident()
        self._lock = threading.Lock()
        self._is_open = False
        self._is_struck = False
        self._told_for: float | None = None  # the renewal in whose budget the handler was told
        self._due = (float("nan"), 0.0)  # a renewal, and when its budget is over
        self._held = 0
        self._blocks = Blocks(connections.all(initialized_only=True))
        self._driven: Driven | None = None
        self._has_ended_transaction = False

    @property
    def seconds_left(self) -> float:
        """Seconds until the handler is to be told; infinite when it was."""
        attempt, renewed_at = self._attempt, self._attempt.renewed_at
        if self._told_for == renewed_at or attempt.revoked or attempt.completed:
            return float("inf")
        if self._due[0] != renewed_at:  # asked at each statement, so it is reckoned once in a budget
            self._due = (renewed_at, attempt.soft_at)
        return self._due[1] - clock.boot_seconds()

    def run(self, function: Callable[[], T]) -> T:
        """Run a handler; whatever becomes of the soft time-out, it ends as its handler did.

        Raises:
            SoftTimeoutError: The handler let it pass, or its transaction ended with the statement that was cancelled.
        """
        # It stores what the function returned before the interpreter looks for an exception from outside.
        call = functools.lru_cache(maxsize=None)(function)
        failure: BaseException | None = None
        self._blocks.wrap(self._statement)
        try:
            try:
                self._is_open = True
                call()
            except BaseException as error:  # noqa: BLE001  raised below, when nothing can come in between any more
                # Python 3.12 leads to here once more what arrives on the way out of here.
                failure = failure or error
            self._shut()
        except SoftTimeoutError:  # it was on its way when the handler ended
            self._shut()
        self._blocks.unwrap(self._statement)
        try:
            if not call.cache_info().currsize:
                raise failure  # type: ignore[misc]  # it raised what it did not return
        finally:
            del failure  # its traceback holds this frame
        if self._has_ended_transaction:
            raise SoftTimeoutError(ENDED_TRANSACTION)
        return call()

    def _shut(self) -> None:
        if self._attempt.is_forked:  # somebody may have held the lock when the copy was made
            return
        with self._lock:
            self._is_open = False
            struck = self._is_struck
        if struck:
            take(SoftTimeoutError)  # leaving the lock lets it arrive in today's interpreters; this does not rely on it

    def drive(self, awaitable: Awaitable[Any]) -> Awaitable[Any]:
        """Return what awaits the same, and in which the exception arrives where it awaits."""
        self._driven = Driven(awaitable, is_due=lambda: self._claim("in the coroutine"))
        return self._driven.run()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Tell nothing in this block: it is the good order in which the handler is to end."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    def check(self) -> None:
        """Tell the handler now, in its own thread, if its time is up.

        Raises:
            SoftTimeoutError: It is.
        """
        if self.seconds_left <= 0 and self._claim("in a call of its context"):
            raise SoftTimeoutError

    def look(self) -> None:
        """Tell the handler if its time is up and it is at a place for that; called by the watching thread."""
        if self.seconds_left > 0 or self._held:
            return
        driven = self._driven
        if driven is not None:
            driven.wake()
            return
        with self._lock:
            where = self._strike()
        if where:
            self._tell(where)

    def _strike(self) -> str:
        frame: FrameType | None = sys._current_frames().get(self._ident) if self._is_open else None  # noqa: SLF001
        if frame is None or not can_strike() or self._blocks.is_inside():
            return ""
        at, where = frame.f_lasti, f"{frame.f_code.co_filename}:{frame.f_lineno}"
        renewed = self._attempt.renewed_at
        if not may_interrupt(frame, _ENTRY) or not strike(self._ident, frame, at, SoftTimeoutError):
            return ""
        self._is_struck, self._told_for = True, renewed
        return where

    def _claim(self, where: str) -> bool:
        """Say whether the caller is the one who tells."""
        with self._lock:
            if self._held or self.seconds_left > 0:
                return False
            self._told_for = self._attempt.renewed_at
        self._tell(where)
        return True

    def _statement(self, execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        """Make a statement of the handler; one that outlasts the budget is cancelled, never left in the middle."""
        connection: BaseDatabaseWrapper = context["connection"]
        left = self.seconds_left
        if left == float("inf") or self._attempt.is_forked or self._held or not self._is_open:
            return execute(sql, params, many, context)
        if not may_refuse_statement(sys._getframe(1), _ENTRY):  # noqa: SLF001
            return execute(sql, params, many, context)
        if left <= 0:
            if self._blocks.would_doom(connection) or not self._claim("at a statement"):
                return execute(sql, params, many, context)
            raise SoftTimeoutError
        call = None
        try:
            with watch.over(connection.alias, left, hurries=False) as call:
                return execute(sql, params, many, context)
        except DatabaseError as error:
            if call is None or call.cancelling is None or not self._claim("in a statement, which was cancelled"):
                raise
            self._has_ended_transaction = self._has_ended_transaction or self._blocks.is_bare(connection)
            raise SoftTimeoutError from error

    def _tell(self, where: str) -> None:
        attempt = self._attempt
        telemetry.emit("attempt.soft_timeout", where=where, **told_of(attempt))
        logger.warning(
            "Attempt %s of job %s has used up its budget of %s; SoftTimeoutError was raised in its handler (%s)",
            attempt.number,
            attempt.job_id,
            attempt.definition.terms.budget,
            where,
            extra={"event": "attempt.soft_timeout"},
        )


NOT_HEEDED = "The handler was told that its budget of {} was over, and let that pass."
ENDED_TRANSACTION = (
    "The budget was over, and the statement that was cancelled ended the transaction of the handler. To end in another "
    "way, wrap statements that may last in transaction.atomic(), or declare atomic=False."
)
_ENTRY = SoftTimeout.run.__code__


@contextmanager
def told_in_time(attempt: RunningAttempt) -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Yield what runs the handler of this attempt, which is told about its time if its type asks for that."""
    if not attempt.definition.soft_timeout:
        yield lambda function: function()
        return
    soft = attempt.soft = SoftTimeout(attempt)
    soft_watch.add(soft)
    try:
        yield soft.run
    except SoftTimeoutError as error:
        text = str(error) if str(error) != SOFT_TIMEOUT else NOT_HEEDED.format(attempt.definition.terms.budget)
        error.args = (f"{text} The attempt ran for {attempt.elapsed.total_seconds():.1f} s.",)
        raise
    finally:
        attempt.soft = None
        soft_watch.remove(soft)
