"""One attempt while it runs: who owns it, how much time is left, and whether it may still act."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import clock
from django_jobs.conf import get_settings
from django_jobs.define.definition import JobDefinition
from django_jobs.domain.lease import overdue_after, soft_after
from django_jobs.exceptions import ContextClosedError, JobCancelled, LeaseLostError
from django_jobs.store import Claimed

LEAVE = 7.0  # seconds that a coroutine on a shared loop has to end after it was taken back

if TYPE_CHECKING:
    from django_jobs.worker.loops import EventLoop
    from django_jobs.worker.soft_timeout import SoftTimeout


class RunningAttempt:
    """Shared by the thread that runs the handler and the loop that watches it.

    All local times are seconds of a clock that also runs while the machine sleeps, counted from before the claim was
    sent: the local deadline is therefore never later than the database's.
    """

    def __init__(self, claimed: Claimed, definition: JobDefinition, *, asked_at: float) -> None:
        self.claimed = claimed
        self.definition = definition
        self.asked_at = asked_at
        self.progress: int | None = None
        self.renewed_at = asked_at
        self.completed = False
        self.outcome = ""  # as it was told; empty while nobody knows
        self.cancel_requested = False  # somebody wants the job cancelled; only the handler can stop itself
        self.recorded = False  # the worker wrote the end itself, after taking the attempt back
        self.open_call_until: float | None = None
        self.ends_by: float | None = None  # the process will not live longer than this
        self.connection: BaseDatabaseWrapper | None = None  # of the thread that runs the handler
        self.soft: SoftTimeout | None = None  # of a type that asks for it, while its handler runs
        self.shared_loop: Callable[[], EventLoop] | None = None  # the one of this process, if coroutines share one
        self.is_on_shared_loop = False  # its handler is, or was, a coroutine there
        self.taken_back_at = float("inf")  # on the clock of this process
        self._revoked = ""
        self._refusal_noted = False
        self._death_told = False
        self._end_told = False
        self._done_told = False
        self._closed = False
        self._pid = os.getpid()
        self._lock = threading.Lock()

    @property
    def job_id(self) -> uuid.UUID:
        """The job."""
        return self.claimed.job_id

    @property
    def attempt_id(self) -> uuid.UUID:
        """The proof of ownership."""
        return self.claimed.attempt_id

    @property
    def number(self) -> int:
        """The attempt's number."""
        return self.claimed.number

    @property
    def using(self) -> str:
        """The database alias."""
        return self.claimed.using

    @property
    def job_type(self) -> str:
        """The job's stored type."""
        return self.claimed.job_type

    @property
    def queue_name(self) -> str:
        """The job's queue."""
        return self.claimed.queue_name

    @property
    def priority(self) -> int:
        """The job's priority."""
        return self.claimed.priority

    @property
    def elapsed(self) -> timedelta:
        """Time since the claim was sent."""
        return timedelta(seconds=clock.boot_seconds() - self.asked_at)

    @property
    def remaining(self) -> timedelta:
        """What is left of the budget, counted from the claim or the last renewal; never below zero.

        While the worker stops, no more than the process has left: a call to a provider that could not end in it is
        then refused before it is made.
        """
        left = self._left(self.definition.terms.budget)
        if self.ends_by is not None:
            left = min(left, timedelta(seconds=self.ends_by - clock.boot_seconds()))
        return max(timedelta(0), left)

    @property
    def lease_remaining(self) -> timedelta:
        """What is left of the lease; never below zero."""
        return max(timedelta(0), self._left(self.definition.terms.lease))

    def _left(self, whole: timedelta) -> timedelta:
        spent = timedelta(seconds=clock.boot_seconds() - self.renewed_at)
        return min(whole - spent, self.definition.terms.max_runtime - self.elapsed)

    @property
    def is_overdue(self) -> bool:
        """Whether the handler has run so long that its lease is about to end."""
        return self.elapsed >= overdue_after(self.definition.terms, renewed=self._renewed)

    @property
    def soft_at(self) -> float:
        """When the handler is to be told that its budget is over, in seconds of this process's clock."""
        return self.asked_at + soft_after(self.definition.terms, renewed=self._renewed).total_seconds()

    @property
    def _renewed(self) -> timedelta:
        return timedelta(seconds=self.renewed_at - self.asked_at)

    @property
    def ends_at(self) -> datetime:
        """When the total run time is over, on the database's clock."""
        return self.claimed.claimed_at + self.definition.terms.max_runtime

    @property
    def database_time(self) -> datetime:
        """The database's time by this process's reckoning: good for ages, never for a decision about the lease."""
        return clock.injected() or self.claimed.claimed_at + self.elapsed

    @property
    def age(self) -> timedelta:
        """Time since this generation of the job could first run."""
        return self.database_time - self.claimed.generation_started_at

    @property
    def useful_left(self) -> timedelta | None:
        """Time until the job is worth nothing."""
        until = self.claimed.useful_until
        return None if until is None else until - self.database_time

    @property
    def revoked(self) -> str:
        """Why the worker took the attempt back from its handler; empty while it did not."""
        return self._revoked

    def revoke(self, why: str) -> None:
        """Stop the handler from acting: its context refuses further use."""
        with self._lock:
            self._revoked = self._revoked or why

    @property
    def resists(self) -> bool:
        """Whether it was taken back from code that cannot be ended: a thread, or a coroutine that does not give up."""
        patience = LEAVE if self.is_on_shared_loop else 0.0
        return clock.boot_seconds() >= self.taken_back_at + patience

    def disconnect(self, cut: Callable[[BaseDatabaseWrapper], None]) -> None:
        """End what the handler's thread has open on its connection, unless that thread has gone on to other work."""
        with self._lock:
            if self.connection is not None and not self._closed:
                cut(self.connection)

    def close(self) -> None:
        """End the attempt: code that the handler left running cannot act any more."""
        with self._lock:
            self._closed = True

    @property
    def is_forked(self) -> bool:
        """Whether this process is a copy of the one that holds the attempt, with the same connection."""
        return self._pid != os.getpid()

    def check_open(self) -> None:
        """Refuse an act after the end.

        Raises:
            LeaseLostError: The worker took the attempt back.
            ContextClosedError: The attempt has ended, or its success is recorded already; or this is a fork.
        """
        if self.is_forked:  # asked before the lock, which somebody may have held when the copy was made
            msg = (
                f"This process is a fork; attempt {self.number} of job {self.job_id} belongs to the one it was made of."
            )
            raise ContextClosedError(msg)
        with self._lock:
            if self._closed or self.completed:
                msg = f"Attempt {self.number} of job {self.job_id} has ended; its context cannot be used any more."
                raise ContextClosedError(msg)
            if self._revoked:
                raise LeaseLostError(self.lost_message)

    def check_wanted(self) -> None:
        """Refuse to begin anything new for a job that somebody wants cancelled.

        Raises:
            JobCancelled: Let it pass, after putting away what must be put away.
        """
        if self.cancel_requested:
            msg = f"Somebody asked that job {self.job_id} be cancelled while attempt {self.number} ran."
            raise JobCancelled(msg)

    def check_budget(self) -> None:
        """Tell a handler whose type asks for it that its budget is over, before it begins anything new.

        Raises:
            SoftTimeoutError: It is, and the handler was not told yet.
        """
        if self.soft is not None:
            self.soft.check()

    def undisturbed(self) -> AbstractContextManager[None]:
        """Return a block in which nobody tells the handler that its budget is over: there it ends in good order."""
        return nullcontext() if self.soft is None else self.soft.held()

    def note_refusal_once(self) -> bool:
        """Say whether the caller is the first who meets the refusal of this attempt's end, and has to note it."""
        with self._lock:
            first, self._refusal_noted = not self._refusal_noted, True
        return first

    def note_death_once(self) -> bool:
        """Say whether the caller is the first who tells the owner that this attempt ended in a dead letter."""
        with self._lock:
            first, self._death_told = not self._death_told, True
        return first

    def note_end_once(self) -> bool:
        """Say whether the caller is the first who tells telemetry how this attempt ended."""
        with self._lock:
            first, self._end_told = not self._end_told, True
        return first

    def note_done_once(self) -> bool:
        """Say whether the caller is the first who tells telemetry that the thread of this attempt is free again."""
        with self._lock:
            first, self._done_told = not self._done_told, True
        return first

    @property
    def was_begun(self) -> bool:
        """Whether a thread has taken it up."""
        return self.connection is not None

    @property
    def lost_message(self) -> str:
        """What is told to code that acts for an attempt which was taken back."""
        return f"Attempt {self.number} of job {self.job_id} was taken back: {self._revoked or 'it lost its lease'}."

    @property
    def has_open_call(self) -> bool:
        """Whether a request to a provider may still be written or answered."""
        until = self.open_call_until
        return until is not None and clock.boot_seconds() < until

    def call_limit(self) -> timedelta:
        """Return the longest time that one call may take."""
        return get_settings().max_call
