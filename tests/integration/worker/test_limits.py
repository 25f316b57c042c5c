"""How often a handler starts before a human decides: exact numbers for errors, deaths and both; and dead threads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import cycle, islice
from typing import Any

import pytest

from django_jobs import RetryPolicy, clock, store
from django_jobs.domain.states import LossCause
from django_jobs.exceptions import DefinitionError
from django_jobs.models import Attempt, Job, Worker
from django_jobs.store import held_by
from django_jobs.worker.finish import give_back
from django_jobs.worker.rescue import take_back
from django_jobs.worker.sweep import Sweep
from tests.factories import WorkerFactory
from tests.integration.worker.conftest import Declare, claimer, run, the_job

pytestmark = pytest.mark.django_db(transaction=True)


def starts_until_dead(declare: Declare, policy: RetryPolicy, ends: Sequence[str]) -> tuple[int, str]:
    """Run the job again and again, ending each attempt in turn as said; returns the starts and the reason."""

    def fails() -> None:
        raise ValueError("no")

    declare(fails, atomic=False, retry=policy).enqueue()
    starts = 0
    for end in islice(cycle(ends), 30):
        Job.objects.filter(state__in=["failed", "queued"]).update(state="queued", available_at=clock.now())
        claiming = claimer()
        claiming._suspect_waits = store.oldest_suspect(claiming.queues(), claiming._types, using="default")
        found = claiming.take(1, 0)
        if not found:
            break
        starts += 1
        if end == "exception":
            run(*found)
        else:
            take_back(held_by(worker_id=claiming.config.uuid, child=0, using="default"), exit_status=-9)
    return starts, the_job().dead_reason


@pytest.mark.parametrize(
    ("limit", "ends", "starts", "reason"),
    [
        (1, ["exception"], 1, "unknown_budget"),
        (2, ["exception"], 2, "unknown_budget"),
        (3, ["exception"], 3, "unknown_budget"),
        (1, ["death"], 2, "poison"),  # one death is never proof: the second one has no company
        (2, ["death"], 2, "poison"),
        (3, ["death"], 3, "poison"),
        (1, ["death", "exception"], 2, "unknown_budget"),
        (2, ["death", "exception"], 4, "unknown_budget"),
        (3, ["death", "exception"], 6, "unknown_budget"),
        (3, ["death", "death", "exception"], 9, "unknown_budget"),
    ],
)
def test_handlers_start_exactly_as_often_as_the_limits_say_r33_r34(
    declare: Declare, limit: int, ends: list[str], starts: int, reason: str
) -> None:
    """Errors are counted over the job's life, deaths since the last attempt that reported anything."""
    policy = RetryPolicy(unknown_attempts=limit, losses=limit)

    assert starts_until_dead(declare, policy, ends) == (starts, reason)
    assert the_job().fence == starts


@pytest.mark.parametrize("limit", [0, None, -1, True, 1.5])
@pytest.mark.parametrize("name", ["unknown_attempts", "losses", "free_moves", "unchanged"])
def test_limits_without_a_meaning_are_refused_r34(name: str, limit: Any) -> None:
    """Neither 0 nor None means "no limit": they are refused when the job is declared."""
    with pytest.raises(DefinitionError, match=name):
        RetryPolicy(**{name: limit})


def test_an_end_on_purpose_charges_nothing(declare: Declare) -> None:
    """What a worker ended and could not give back is due at once, is no suspect, and still says what happened."""
    declare(lambda: None).enqueue()
    claiming = claimer()
    claiming.take(1, 0)

    found = held_by(worker_id=claiming.config.uuid, child=0, using="default", on_purpose=True)
    take_back(found, exit_status=3)

    job, attempt = the_job(), Attempt.objects.get()
    assert (job.state, job.lost_count, job.exit_lost_count, job.free_count, job.isolation) == ("queued", 0, 0, 1, "")
    assert (attempt.outcome, attempt.loss_cause, attempt.exit_status) == ("lost", "ended", 3)
    assert "may have succeeded" in attempt.message


@pytest.mark.parametrize(
    ("free", "age", "state"), [(199, 0, "queued"), (200, 0, "dead_lettered"), (2, 25, "dead_lettered")]
)
def test_a_job_that_is_given_back_without_end_is_left_to_a_human_r29(
    declare: Declare, free: int, age: int, state: str
) -> None:
    """Releases charge no error budget, but 200 of them, or several over more than a day, mean that nothing moves."""
    declare(lambda: None).enqueue()
    started = clock.now() - timedelta(hours=age)
    Job.objects.update(free_count=free, generation_started_at=started)
    (attempt,) = claimer().take(1, 0)

    assert give_back(attempt, message="Its worker stopped.")

    job = the_job()
    assert (job.state, job.unknown_count, job.transient_count, job.lost_count) == (state, 0, 0, 0)
    assert job.dead_reason == ("" if state == "queued" else "no_progress")


def test_silence_of_a_stopping_worker_is_found_as_such(declare: Declare) -> None:
    """The judge learns from the worker's row that it had been asked to stop."""
    declare(lambda: None).enqueue()
    claiming = claimer()
    claiming.take(1, 0)
    WorkerFactory(id=claiming.config.uuid, silent=True, stopping_at=clock.now())

    (found,) = store.abandoned(using="default")

    assert (found.cause, found.stopping) == (LossCause.SILENT, True)


def test_nobody_takes_back_a_job_whose_lease_is_valid_r05(
    declare: Declare, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Global times far shorter than one type's lease change nothing under a worker that beats: its longer lease wins."""
    second = timedelta(seconds=1)
    settings.DJANGO_JOBS = {
        **getattr(settings, "DJANGO_JOBS", {}),
        "HEARTBEAT": second,
        "SILENT_AFTER": 3 * second,
        "EXPIRED_PATIENCE": second,
        "REAPER_TICK": second,
    }
    declare(lambda: None, budget=timedelta(minutes=47), cleanup=timedelta(minutes=1), atomic=False).enqueue()
    claiming = claimer()
    (running,) = claiming.take(1, 0)
    began = running.claimed.claimed_at
    worker = WorkerFactory(id=claiming.config.uuid)

    def look(after: timedelta) -> str:
        with clock.override(lambda: began + after):
            Worker.objects.filter(pk=worker.pk).update(heartbeat_at=began + after)
            Sweep("default").go_on(lambda: True)
            store.promote(["default"], using="default")
            store.expire(using="default")
        return the_job().state

    lease = timedelta(minutes=48)
    assert {look(after) for after in (second, timedelta(minutes=6), timedelta(minutes=47), lease - second)} == {
        "running"
    }
    assert look(lease + 2 * second) == "queued", "once it is over for the patience, it is taken back"


def test_finishing_is_one_step_r08(declare: Declare, vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One statement on PostgreSQL; on SQLite a crash between any two of its statements leaves the job as it was."""
    from django_jobs.store import statements

    declare(lambda: None, atomic=False).enqueue()
    claiming = claimer()
    (running,) = claiming.take(1, 0)
    parts = statements.load(vendor, "succeed")
    assert len(parts) == 1 or vendor == "sqlite"
    real = statements._execute
    for crash_at in range(1, len(parts)):
        seen: list[str] = []

        def crashing(connection: Any, text: str, params: Any, seen: list[str] = seen, at: int = crash_at) -> Any:
            seen.append(text)
            if text in parts and parts.index(text) == at:
                raise RuntimeError("crash")
            return real(connection, text, params)

        monkeypatch.setattr(statements, "_execute", crashing)
        with pytest.raises(RuntimeError):
            store.succeed(running, result=None, budget=timedelta(seconds=60))
        monkeypatch.undo()
        job, attempt = the_job(), Attempt.objects.get()
        assert (job.state, job.attempt_id, attempt.outcome) == ("running", running.attempt_id, None)
    store.succeed(running, result=None, budget=timedelta(seconds=60))
    assert (the_job().state, the_job().lease_expires_at, Attempt.objects.get().outcome) == (
        "succeeded",
        None,
        "succeeded",
    )


def test_renewals_come_several_times_per_lease_r13(declare: Declare) -> None:
    """The shortest time between two written renewals is at most a third of the lease, whatever the lease."""
    from django_jobs.domain.lease import LeaseTerms

    for seconds in (1, 2, 60, 3600):
        terms = LeaseTerms(budget=timedelta(seconds=seconds), cleanup=timedelta(seconds=1))
        assert terms.progress_interval <= terms.lease / 3
        assert terms.progress_interval < terms.lease - terms.overdue_margin, "the first renewal comes before the end"
