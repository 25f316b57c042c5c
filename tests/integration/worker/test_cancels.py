"""A running job that somebody wants cancelled: how its handler hears it, and what its end then means."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError, connection, connections
from django.test.utils import CaptureQueriesContext

from django_jobs import Confirmed, JobContext, RetryPolicy, clock, effect, telemetry
from django_jobs.domain.providers import Unknown
from django_jobs.exceptions import EffectUncertain, JobCancelled, Snooze
from django_jobs.models import Attempt, Job, JobStep, Send
from django_jobs.operate.verify import verify
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.cancels import LOOK_EVERY, CancelEar
from tests.integration.operate.test_cancel import decided
from tests.integration.worker.conftest import Declare, run, take, the_job, write
from tests.scenes import Told

pytestmark = pytest.mark.django_db(transaction=True)

Table = Callable[[], list[int]]
Work = Callable[[JobContext], Any]
SLOWLY = RetryPolicy(base=timedelta(hours=1), cap=timedelta(hours=1))


@effect("tests.cancelled", dedupe="key", key_lifetime=timedelta(hours=1), timeout=timedelta(seconds=1))
def charge(call: Any, *, answer: str) -> Any:
    """Answer as asked: confirmed, or unknown."""
    return Confirmed("ref") if answer == "confirmed" else Unknown("no answer")


def ear(*attempts: RunningAttempt) -> CancelEar:
    """Return what hears for a child that runs these attempts."""
    return CancelEar(SimpleNamespace(running=list(attempts)), using="default")  # type: ignore[arg-type]


def asked(declare: Declare, work: Work, *, hear: bool = True, **options: Any) -> Attempt:
    """Claim a job, ask that it be cancelled, let its child hear that, and run the handler; returns the attempt."""
    declare(lambda context: work(context), takes_context=True, **options).enqueue()
    attempt = take()
    decided(the_job())
    if hear:
        ear(attempt).listen()
        assert attempt.cancel_requested
    run(attempt)
    return Attempt.objects.get(pk=attempt.attempt_id)


def _complete(context: JobContext) -> None:
    with context.complete():
        write(1)


ACTS: dict[str, Work] = {
    "progress": lambda context: context.progress(1),
    "effect": lambda context: context.effect("charge", charge, answer="confirmed"),
    "step": lambda context: context.step("write", lambda: write(1)),
    "complete": _complete,
}


@pytest.mark.parametrize("act", ACTS)
def test_context_refuses_to_begin_anything(declare: Declare, table: Table, act: str) -> None:
    """What the handler asks of its context next raises JobCancelled; nothing is written, sent or recorded."""
    seen: list[object] = []

    def work(context: JobContext) -> None:
        seen.append(context.cancelled)
        try:
            ACTS[act](context)
        except JobCancelled as error:
            seen.append(error)
            raise

    attempt = asked(declare, work)

    assert seen[0] is True
    assert isinstance(seen[1], JobCancelled)
    assert (attempt.outcome, the_job().state) == ("cancelled", "cancelled")
    assert (table(), JobStep.objects.count(), Send.objects.count()) == ([], 0, 0)
    assert verify(using="default").violated == ()


@pytest.mark.parametrize("hears", [True, False], ids=["context", "plain"])
def test_handler_that_completes_was_faster(declare: Declare, table: Table, hears: bool) -> None:
    """A handler that cannot hear, or has not heard yet, wins by committing its success."""
    if hears:
        assert asked(declare, _complete, hear=False).outcome == "succeeded"
    else:
        declare(lambda: write(1)).enqueue()
        attempt = take()
        decided(the_job())
        ear(attempt).listen()
        run(attempt)

    assert the_job().state == "succeeded"
    assert table() == [1]
    assert verify(using="default").violated == ()


@pytest.mark.parametrize("answer", ["confirmed", "unknown"])
def test_cancel_after_a_send_is_left_to_a_human(declare: Declare, table: Table, answer: str) -> None:
    """What was sent may stand: the job ends as a dead letter for the reason "cancelled", and its owner is told."""

    def work(context: JobContext) -> None:
        with contextlib.suppress(EffectUncertain):
            context.effect("charge", charge, answer=answer)
        decided(the_job())
        running[0].cancel_requested = True
        _complete(context)

    running: list[RunningAttempt] = []
    declare(lambda context: work(context), takes_context=True).enqueue()
    running.append(take())
    with Told() as told:
        run(*running)

    job = the_job()
    assert (job.state, job.dead_reason, job.resolution) == ("dead_lettered", "cancelled", None)
    assert Attempt.objects.get().outcome == "cancelled"
    assert [fields["dead_reason"] for fields in told.named("owner.alert")] == ["cancelled"]
    assert table() == []


def test_unclear_send_is_still_found_out(declare: Declare, table: Table) -> None:
    """The same request under the same key is how the truth is found: it goes out, though the job is not wanted."""
    answers = ["unknown", "confirmed"]
    running: list[RunningAttempt] = []

    @effect("tests.odd", dedupe="key", key_lifetime=timedelta(hours=1), timeout=timedelta(seconds=1))
    def odd(call: Any) -> Any:
        return Confirmed("ref") if answers.pop(0) == "confirmed" else Unknown("no answer")

    def ask(context: JobContext) -> None:
        running[-1].cancel_requested = len(answers) == 1
        context.effect("charge", odd)

    declare(ask, takes_context=True).enqueue()
    running.append(take())
    run(running[-1])
    Job.objects.update(state="queued", available_at=clock.now())
    running.append(take())
    run(running[-1])

    assert [send.outcome for send in Send.objects.order_by("number")] == ["unknown", "confirmed"]


def test_handler_may_cancel_its_own_job(declare: Declare) -> None:
    """JobCancelled without a request is the handler's own decision: no failure, no retry, and its words are kept."""

    def work(context: JobContext) -> None:
        raise JobCancelled("the order is gone")

    declare(work, takes_context=True).enqueue()
    attempt = take()
    run(attempt)

    row = Attempt.objects.get()
    assert (row.outcome, row.message, row.error_type) == ("cancelled", "the order is gone", "")
    assert the_job().state == "cancelled"
    assert verify(using="default").violated == ()


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(ValueError("instead"), "failed"), (Snooze(timedelta(hours=1)), "snoozed"), (Snooze(timedelta(0)), "snoozed")],
)
def test_other_end_is_recorded_and_the_job_cancelled_with_it(declare: Declare, error: Exception, outcome: str) -> None:
    """A handler that fails instead of hearing keeps its error; nobody ever sees the job waiting in between."""
    seen: list[str] = []

    def look(event: str, fields: dict[str, object]) -> None:
        if event in {"job.fail", "job.snooze"}:
            other = threading.Thread(target=_look, args=(seen,))
            other.start()
            other.join()

    def work(context: JobContext) -> None:
        raise error

    end = telemetry.subscribe(look)
    try:
        attempt = asked(declare, work, retry=SLOWLY)
    finally:
        end()

    assert seen == ["running"]
    assert (attempt.outcome, the_job().state) == (outcome, "cancelled")
    assert verify(using="default").violated == ()


def _look(seen: list[str]) -> None:
    try:
        seen.append(Job.objects.get().state)
    finally:
        connections.close_all()


def test_ear_asks_once_a_second_for_all_and_never_for_none(declare: Declare) -> None:
    """Without a running attempt there is no statement; with some there is one, and not again within the second."""
    declare(lambda: None).enqueue_many([{}, {}])
    attempts = [take(), take()]
    with CaptureQueriesContext(connection) as queries:
        ear().listen()
    assert len(queries) == 0
    listening = ear(*attempts)
    with CaptureQueriesContext(connection) as queries:
        listening.listen()
        listening.listen()

    assert len(queries) == 1
    assert LOOK_EVERY < 1
    assert [attempt.cancel_requested for attempt in attempts] == [False, False]


def test_ear_outlives_the_database(declare: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that fails is noted and ends nothing: the same loop watches leases."""
    declare(lambda: None).enqueue()
    attempt = take()

    def away(*args: object, **options: object) -> set[object]:
        raise OperationalError("away")

    monkeypatch.setattr("django_jobs.worker.cancels.cancels_asked", away)
    with Told() as told:
        ear(attempt).listen()

    assert [fields["loop"] for fields in told.named("loop.failed")] == ["cancel"]
    assert attempt.cancel_requested is False
