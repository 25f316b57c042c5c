"""Ending handlers from outside: those that ran past their lease, and those that still run when the process must end."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from datetime import timedelta

from django.db import DatabaseError

from django_jobs import clock, telemetry
from django_jobs.conf import get_settings
from django_jobs.exceptions import LeaseLostError
from django_jobs.store import note_refusal
from django_jobs.store.completion import read_back
from django_jobs.worker.alerts import tell_if_dead
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.config import Exit
from django_jobs.worker.connection import LOST, bounded, cut, drop, keep_cut
from django_jobs.worker.finish import give_back, ran_past, record_failure
from django_jobs.worker.outage import outage
from django_jobs.worker.patience import stopping
from django_jobs.worker.pool import Pool
from django_jobs.worker.wake import Wake
from django_jobs.worker.watch import watch

logger = logging.getLogger("django_jobs.worker")

FROZEN = 2.0  # seconds between two looks: more, and this process stood still; its handlers get a moment to finish
MOMENT = 2.0  # seconds
RELEASE_TRIES = 8
DRAIN_TICK = 0.2  # seconds
RECORD_PATIENCE = timedelta(seconds=1)


class Ending:
    """Takes attempts back from handlers; a process whose thread cannot be stopped has to be replaced."""

    def __init__(
        self,
        pool: Pool,
        wake: Wake,
        *,
        grace: float,
        announce: Callable[[], object] = lambda: None,
        listen: Callable[[], object] = lambda: None,
    ) -> None:
        self.recycling = False
        self._is_retiring = False
        self._pool = pool
        self._wake = wake
        self._grace = grace
        self._announce = announce
        self._listen = listen  # for requests to cancel what still runs
        self._looked_at = clock.boot_seconds()
        self._not_before = 0.0
        self._overdue: list[RunningAttempt] = []  # taken back and not yet recorded; their threads may have ended since

    def retire(self, why: str) -> None:
        """Plan the end of this process, which has served long enough: what runs ends by itself, and nothing is cut."""
        self.recycling = self._is_retiring = True
        logger.info("This child takes no more jobs and is replaced: %s", why, extra={"event": "child.retired"})
        telemetry.emit("child.retired", why=why)

    def end_overdue(self) -> None:
        """Fail attempts that ran past their lease, and plan the end of this process: code cannot be stopped."""
        now = clock.boot_seconds()
        if now - self._looked_at > FROZEN:
            self._not_before = now + MOMENT
        self._looked_at = now
        found = []
        for attempt in self._pool.running:
            if now >= self._not_before and not attempt.revoked and attempt.is_overdue:
                self._take_back(attempt, "it ran past its lease")
                found.append(attempt)
            elif attempt.revoked:
                attempt.disconnect(keep_cut)
            self.recycling = self.recycling or attempt.resists
        self._overdue += found
        if not found:  # else at the next look: a cut handler that waited for SQLite's lock may get it only now
            self._record_all()

    def _record_all(self) -> None:
        for attempt in self._overdue:
            self._record_overdue(attempt)
        self._overdue = [attempt for attempt in self._overdue if not attempt.recorded]

    def _take_back(self, attempt: RunningAttempt, why: str) -> None:
        attempt.revoke(why)
        attempt.taken_back_at = clock.boot_seconds()
        attempt.disconnect(cut)

    def _record_overdue(self, attempt: RunningAttempt) -> None:
        if attempt.completed:  # it succeeded; only the code after its completion goes on
            attempt.recorded = True
            return
        lease = attempt.definition.terms.lease
        error = ran_past(lease)
        try:
            # Bounded: the server may still run the handler's last statement, and this loop serves other threads too.
            with bounded(attempt.using, RECORD_PATIENCE):
                record_failure(attempt, error, settle=lambda _, action: action())
        except LeaseLostError:  # somebody judged it before, or an earlier try was written and its reply lost
            attempt.recorded = True
            claimed = attempt.claimed
            tell_if_dead(attempt, owner=claimed.owner, job_type=claimed.job_type, once=attempt.note_death_once)
            self._note_refusal(attempt)
        except LOST as problem:
            drop(attempt.using)
            outage.failed(problem)
        else:
            attempt.recorded = True
            logger.warning("Attempt %s of job %s ran past its lease and was ended", attempt.number, attempt.job_id)
            telemetry.emit("attempt.overdue", job_id=attempt.job_id, job_type=attempt.claimed.job_type)

    def _note_refusal(self, attempt: RunningAttempt) -> None:
        """Note it if somebody took the attempt away; one that ended by itself, or was failed here, was not too late."""
        with contextlib.suppress(DatabaseError), bounded(attempt.using, RECORD_PATIENCE):
            if read_back(attempt).outcome in (None, "lost") and attempt.note_refusal_once():
                note_refusal(attempt, "fail")

    def drain(self, stops: Callable[[], int]) -> int:
        """Let running handlers end, then give back what has not; returns the exit code.

        An attempt is never given back while a request of it to a provider may still be written or answered.
        """
        deadline = clock.boot_seconds() + self._grace
        while self._waits(deadline, stops()):
            if self._is_retiring and not stops():
                deadline = clock.boot_seconds() + self._grace  # the grace begins when somebody wants the worker to stop
            self.end_overdue()
            self._listen()
            self._wake.wait(DRAIN_TICK)
        self._announce()  # before anything is given back: a kill may come, or the database may be away
        left = self._unfinished()
        for attempt in left:
            self._take_back(attempt, "its worker stops")
        for attempt in left:
            if not attempt.completed:
                self._give_back(attempt)
        stopping.set()
        if left and stops():
            return Exit.GRACE_EXCEEDED
        return Exit.RECYCLE if self.recycling else Exit.CLEAN

    def _unfinished(self) -> list[RunningAttempt]:
        return [attempt for attempt in self._pool.running if not attempt.revoked]

    def _waits(self, deadline: float, stops: int) -> bool:
        running = self._unfinished()
        end = clock.boot_seconds() if stops > 1 else deadline
        for attempt in running:
            attempt.ends_by = end
        if any(attempt.has_open_call for attempt in running):
            return True
        return bool(running or self._overdue) and clock.boot_seconds() < end

    def _give_back(self, attempt: RunningAttempt) -> None:
        """Release; its own transaction may still be ending, and then it is tried again for a moment."""
        for _ in range(RELEASE_TRIES):
            try:
                with watch.over(attempt.using, MOMENT):
                    given_back = give_back(attempt, message="Its worker stopped before the handler had ended.")
                if given_back:
                    attempt.recorded = True
                    return
            except LeaseLostError:
                return
            except DatabaseError as error:
                drop(attempt.using)
                outage.failed(error)
            if attempt not in self._pool.running:
                return
            stopping.wait(DRAIN_TICK)
        logger.warning("Attempt %s of job %s could not be given back", attempt.number, attempt.job_id)


def longest_stop(grace: float) -> float:
    """Return after how many seconds a stopping child is stuck: its grace, open calls, and some time to tell."""
    return grace + get_settings().max_call.total_seconds() + 3.0
