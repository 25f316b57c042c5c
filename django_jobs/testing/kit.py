"""The kit itself: what a test holds to let jobs run, to move time and to ask what was enqueued."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import Any, Self

from django.core import mail
from django.db import DEFAULT_DB_ALIAS, connections

from django_jobs.define import registry
from django_jobs.define.definition import DurableJob
from django_jobs.enqueue import backpressure
from django_jobs.exceptions import KitError
from django_jobs.models import Job
from django_jobs.outbox.destinations import known_destinations
from django_jobs.testing import running
from django_jobs.testing.clock import JobsClock
from django_jobs.testing.enqueued import check_enqueued
from django_jobs.testing.inline import Inline, inlined
from django_jobs.testing.receiver import FakeReceiver
from django_jobs.testing.reports import AttemptReport, RunReport
from django_jobs.testing.stage import Actor
from django_jobs.testing.views import JobView, check_invariants

MAX_ATTEMPTS = 100
MAX_SKIPS = 1000  # moves of the clock without an attempt in between: deliveries that are refused


class RestlessError(KitError):
    """There were more attempts, or moves of the clock, than a test may reasonably need."""


class JobsKit:
    """Runs the jobs of a test in its own thread, on its own connection, by the code that workers run.

    In a ``TestCase``: ``self.jobs = self.enterContext(JobsKit())`` in ``setUp()``. With pytest: the fixture ``jobs``.

    Args:
        using: The database whose jobs are meant.
        clock: A clock of the test's; default: the one that is in force when the kit is entered, else one of its own.
    """

    def __init__(self, *, using: str = DEFAULT_DB_ALIAS, clock: JobsClock | None = None) -> None:
        self.using = using
        self.clock = clock or JobsClock()
        self._takes_any_clock = clock is None
        self.may_be_held = False  # a test may pause an attempt: each one runs in a thread of its own then
        self.receivers: dict[str, FakeReceiver] = {}
        self._stack: ExitStack | None = None

    def __enter__(self) -> Self:
        """Put the clock in force, and tell the database where events go.

        Raises:
            KitError: No test is running here.
        """
        if not hasattr(mail, "outbox"):  # what Django's setup_test_environment() leaves everywhere
            msg = (
                "The test kit moves the clock of the whole process and runs jobs in the thread of its caller. It works "
                "in a test run only, after django.test.utils.setup_test_environment()."
            )
            raise KitError(msg)
        if self._takes_any_clock:  # two clocks in one process: the first would be moved, and nothing would follow
            self.clock = JobsClock.in_force() or self.clock
        with ExitStack() as stack:
            if not self.clock.is_in_force:
                stack.enter_context(self.clock)
            backpressure.forget_samples()  # of a test whose rows are gone
            running.announce_routes(self.using)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Put the former clock back."""
        if self._stack is not None:
            self._stack.close()
        self._stack = None
        backpressure.forget_samples()

    def enqueue(
        self, job_type: str | DurableJob[..., Any], payload: Mapping[str, Any] | None = None, *, key: str | None = None
    ) -> JobView:
        """Enqueue a job as the code under test would, and return a view of it.

        Args:
            job_type: Its stored name, or the function with ``@job``.
            payload: Its arguments by name.
            key: Its idempotency key; default: what the job type declares.

        Raises:
            UnknownJobTypeError: No handler has this name.
            JobsError: As ``enqueue()`` of the job type raises it.
        """
        self._check()
        handler = registry.get(job_type) if isinstance(job_type, str) else job_type
        changes = {"database": self.using} if key is None else {"database": self.using, "key": key}
        return self.job(handler.using(**changes).enqueue(**(payload or {})).id)

    def job(self, job_id: uuid.UUID) -> JobView:
        """Return a view of a job, which reads its state anew each time that it is asked.

        Raises:
            KitError: There is none with this id.
        """
        return JobView(job_id, using=self.using)

    def assert_invariants(self) -> None:
        """Check the rows by the rules that must always hold, as ``manage.py jobs verify`` does.

        Raises:
            AssertionError: One does not hold; the message says in plain English which, and for what.
        """
        check_invariants(self.using)

    @contextmanager
    def inline(self) -> Iterator[Inline]:
        """Run each job at once when it is enqueued in the block, and what comes of it: after the commit if one is open.

        In a ``TestCase``, what waits for a commit runs at the end of ``captureOnCommitCallbacks(execute=True)``, and at
        the latest at the end of the block. Time is not moved. The reports of all attempts are in ``report``.
        """
        self._check()
        with inlined(self.using, self.drain) as inline:
            yield inline

    def run_one(self) -> AttemptReport:
        """Run one attempt of the job that is first now.

        Raises:
            KitError: No job is due; the message says what waits.
        """
        self._check()
        turn = self._play()
        report = turn.reports[0] if turn.reports else running.last_of(turn.worker_id, using=self.using)
        if report is None:
            raise KitError(f"No job is due. {self._what_waits()}")
        return report

    def drain(self, *, max_attempts: int = MAX_ATTEMPTS) -> RunReport:
        """Run all that is due now, what comes of it too: events are delivered, time is not moved.

        Raises:
            RestlessError: There were more than ``max_attempts`` attempts.
        """
        return self._run(max_attempts, skips=False)

    def run_until_idle(self, *, max_attempts: int = MAX_ATTEMPTS) -> RunReport:
        """Run all that is due, move the clock to when something becomes due next, and so on until nothing waits.

        Retries, snoozes, jobs for later, deliveries that were refused and lost attempts all have their turn.

        Raises:
            RestlessError: There were more than ``max_attempts`` attempts.
        """
        return self._run(max_attempts, skips=True)

    def dispatch_events(self) -> None:
        """Deliver the events that are due: to subscribers, whose jobs are then due, and to fake receivers."""
        self._check()
        running.dispatch_due(self.using, self.receivers)

    def lose_one(self) -> None:
        """Claim the job that is first now for a worker that dies before it begins.

        The attempt is taken back when the clock has gone on far enough, as ``run_until_idle()`` does.

        Raises:
            KitError: No job is due.
        """
        self._check()
        running.lose_due(self.using)

    def fake_receiver(self, name: str) -> FakeReceiver:
        """Take the place of a destination: from now on the kit delivers its events to what this returns.

        Raises:
            KitError: ``DJANGO_JOBS["DESTINATIONS"]`` has no such destination.
        """
        self._check()
        if name not in known_destinations():
            msg = f"DJANGO_JOBS['DESTINATIONS'] has no destination {name!r}, so no event would ever be sent there."
            raise KitError(msg)
        return self.receivers.setdefault(name, FakeReceiver(name))

    def assert_enqueued(
        self,
        job_type: str | DurableJob[..., Any],
        arguments: Mapping[str, Any] | None = None,
        *,
        count: int | None = None,
    ) -> list[Job]:
        """Return the jobs of a type that have ``arguments`` among theirs, oldest first, in whatever state they are.

        Raises:
            AssertionError: There is none, or ``count`` is given and there are more or fewer.
        """
        return check_enqueued(job_type, arguments or {}, count=count, using=self.using)

    def _run(self, max_attempts: int, *, skips: bool) -> RunReport:
        self._check()
        done: list[AttemptReport] = []
        skipped = 0
        while True:
            looked_at = self.clock.now()  # what becomes due behind this look is for the next one
            next_delivery = running.dispatch_due(self.using, self.receivers)
            turn = self._play()
            if not turn.did_something:
                turn = running.take_back(self.using)
            done += turn.reports
            if not turn.did_something and running.close_left(self.using):
                continue
            skipped = 0 if turn.did_something else skipped + 1
            if len(done) > max_attempts or skipped > MAX_SKIPS:
                raise RestlessError(_restless(done, max_attempts))
            if not turn.did_something and not (skips and self._skip(next_delivery, looked_at)):
                return RunReport.of(done)

    def _play(self) -> running.Turn:
        """Let a worker run one attempt; one that stands still in the middle is silent from then on."""
        if not self.may_be_held:
            return running.run_due(self.using)
        actor = Actor(lambda: running.run_due(self.using))
        turn = actor.begin()
        if turn is not None:
            return turn
        running.beat_once(actor.worker_id, using=self.using)
        return running.Turn(has_died=True, worker_id=actor.worker_id)

    def _skip(self, next_delivery: datetime | None, looked_at: datetime) -> bool:
        """Move to the next due moment; False when nothing waits."""
        moments = [
            moment for moment in (next_delivery, running.next_due(self.using, since=looked_at)) if moment is not None
        ]
        if not moments:
            return False
        if (ahead := min(moments) - self.clock.now()) > timedelta(0):  # asked once: the clock goes on meanwhile
            self.clock.tick(ahead)
        return True

    def _check(self) -> None:
        if self._stack is None:
            msg = "Enter the kit first: with JobsKit() as jobs, or self.enterContext(JobsKit()) in setUp()."
            raise KitError(msg)

    def _what_waits(self) -> str:
        texts = []
        due = running.next_due(self.using)
        if due is not None:
            texts.append(f"The next one is in {due - self.clock.now()}; run_until_idle() would go there.")
        hooks = len(connections[self.using].run_on_commit)
        if hooks:
            texts.append(
                f"{hooks} functions wait for the commit, which a TestCase never makes: enqueue inside of "
                "captureOnCommitCallbacks(execute=True)."
            )
        return " ".join(texts) or "Nothing waits."


def _restless(done: list[AttemptReport], max_attempts: int) -> str:
    last = "\n".join(f"  {report}" for report in done[-10:])
    if len(done) > max_attempts:
        return (
            f"Jobs did not come to rest in {max_attempts} attempts; max_attempts= allows more. The last ones:\n{last}"
        )
    return f"Events or lost attempts did not come to rest in {MAX_SKIPS} moves of the clock. The last attempts:\n{last}"
