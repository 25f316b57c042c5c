"""Real claims of a real job type, a clock that the test moves, and small providers with a scripted answer."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django_jobs import clock, job
from django_jobs.domain.effects import Confirmed, Dedupe, Guarantees, Outcome, Reconciliation, Verdict
from django_jobs.domain.ids import uuid7
from django_jobs.domain.retry import Counters, RetryPolicy
from django_jobs.domain.states import LossCause
from django_jobs.effects.call import EffectCall
from django_jobs.effects.record import perform
from django_jobs.models import Job, Send, SideEffect
from django_jobs.store import ClaimRequest, KnownType, Loss, claim, promote, rescue, snooze
from django_jobs.worker.attempt import RunningAttempt

DAY = timedelta(hours=24)
START = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
WORKER = uuid.uuid4()

RETRY = RetryPolicy(base=timedelta(seconds=1), cap=timedelta(seconds=2))


@job(type="tests.effects.act", takes_context=True, retry=RETRY, owner="billing")
def act_job(context: Any, order_id: int) -> None:
    """Do nothing: the tests drive its attempts themselves."""


class Crash(BaseException):
    """The process ends here: nothing after this line runs."""


@dataclass(slots=True)
class MovableClock:
    """The time of every statement; it stands still until a test moves it."""

    now: datetime = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **parts: float) -> datetime:
        """Move on by a timedelta's parts and return the new time."""
        self.now += timedelta(**parts)
        return self.now


@contextmanager
def movable_clock() -> Iterator[MovableClock]:
    """Put a movable clock in place of the database's."""
    source = MovableClock()
    with clock.override(source):
        yield source


Scripted = Outcome | BaseException | Callable[[EffectCall], Outcome]


@dataclass(slots=True)
class FakeProvider:
    """An operation whose answers are scripted; it keeps what it was asked."""

    guarantees: Guarantees
    answers: list[Scripted] = field(default_factory=list)
    found: list[Reconciliation | Verdict | BaseException] = field(default_factory=list)
    name: str = "fake.act"
    timeout: timedelta = timedelta(seconds=5)
    requires_key: bool = False
    retry: RetryPolicy | None = None
    aliases: tuple[str, ...] = ()
    calls: list[EffectCall] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    questions: list[EffectCall] = field(default_factory=list)

    def send(self, call: EffectCall, **request: Any) -> Outcome:
        """Answer with the next scripted outcome, or with a confirmation."""
        self.calls.append(call)
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else Confirmed(f"ref-{len(self.calls)}")
        if isinstance(answer, BaseException):
            raise answer
        return answer(call) if callable(answer) else answer

    def reconcile(self, call: EffectCall, **request: Any) -> Reconciliation | Verdict:
        """Answer with the next scripted finding."""
        self.questions.append(call)
        found = self.found.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    @property
    def keys(self) -> list[str]:
        """The keys that came with the requests, in order."""
        return [call.key for call in self.calls]


def keyed(*answers: Scripted, asks: bool = False, caches_failures: bool = False, **fields: Any) -> FakeProvider:
    """A provider with keys that live a day."""
    promise = Guarantees(
        dedupe=Dedupe.KEY,
        key_lifetime=DAY,
        can_reconcile=asks,
        caches_failures=caches_failures,
        settle=timedelta(seconds=30),
    )
    return FakeProvider(guarantees=promise, answers=list(answers), **fields)


def natural(*answers: Scripted, **fields: Any) -> FakeProvider:
    """A provider at which the same bytes converge."""
    return FakeProvider(guarantees=Guarantees(dedupe=Dedupe.NATURAL), answers=list(answers), **fields)


def askable(*answers: Scripted, visible_after: timedelta = timedelta(0), **fields: Any) -> FakeProvider:
    """A provider without keys that can be asked what happened."""
    promise = Guarantees(
        dedupe=Dedupe.NONE, can_reconcile=True, settle=timedelta(seconds=30), visible_after=visible_after
    )
    return FakeProvider(guarantees=promise, answers=list(answers), **fields)


def blind(*answers: Scripted, **fields: Any) -> FakeProvider:
    """A provider with neither keys nor answers to questions."""
    return FakeProvider(guarantees=Guarantees(dedupe=Dedupe.NONE), answers=list(answers), **fields)


def enqueue(order_id: int = 7, **options: Any) -> uuid.UUID:
    """Record a job and return its id."""
    return act_job.using(**options).enqueue(order_id=order_id).id


def claimed(job_id: uuid.UUID | None = None) -> RunningAttempt:
    """Claim the job that is due, really, and return its attempt."""
    asked_at = clock.boot_seconds()
    definition = act_job.definition
    known = KnownType(
        job_type=definition.job_type, payload_version=1, lease=definition.terms.lease, code_version="tests"
    )
    request = ClaimRequest(
        queues=["default"],
        types=[known],
        attempt_ids=[uuid7()],
        worker_id=WORKER,
        worker_child=1,
        worker_name="tests",
    )
    promote(["default"], using="default")
    found = claim(request, using="default")
    assert len(found) == 1, "no job is due"
    assert job_id in (None, found[0].job_id), "another job was claimed first"
    return RunningAttempt(found[0], definition, asked_at=asked_at)


def running(order_id: int = 7, **options: Any) -> RunningAttempt:
    """A job in its first attempt."""
    return claimed(enqueue(order_id, **options))


def lost(attempt: RunningAttempt) -> None:
    """Take the job back from an attempt whose process is gone; it is due at once."""
    loss = Loss(cause=LossCause.EXIT, counters=Counters(), delay=timedelta(0), dead_reason=None)
    assert rescue(attempt, loss=loss)


def again(attempt: RunningAttempt) -> RunningAttempt:
    """The next attempt after this one's process died."""
    lost(attempt)
    return claimed(attempt.job_id)


def after_waiting(attempt: RunningAttempt) -> RunningAttempt:
    """The next attempt after this one was snoozed for evidence."""
    snooze(attempt, delay=timedelta(0), counters=Counters(), message="waits", for_evidence=True)
    return claimed(attempt.job_id)


def act(
    attempt: RunningAttempt,
    operation: Any,
    *,
    name: str = "charge",
    key: str | None = "order:7",
    required: bool = True,
    on_ambiguous: str = "review",
    **request: Any,
) -> Confirmed:
    """Ask for an effect as a handler's context does."""
    return perform(
        attempt,
        name,
        operation,
        key=key,
        required=required,
        on_ambiguous=on_ambiguous,
        request=request or {"order_id": 7},
    )


def effect_row() -> SideEffect:
    """The only effect."""
    return SideEffect.objects.get()


def outcomes() -> list[str | None]:
    """What is recorded of each send, in order."""
    return list(Send.objects.order_by("number").values_list("outcome", flat=True))


def epochs() -> list[int]:
    """The key epoch of each send, in order."""
    return list(Send.objects.order_by("number").values_list("epoch", flat=True))


def job_row(attempt: RunningAttempt) -> Job:
    """The job as it is stored."""
    return Job.objects.get(pk=attempt.job_id)
