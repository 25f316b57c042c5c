"""The last end of a job that is given up: its owner is told once, with how it began, whatever that end was."""

from __future__ import annotations

import contextlib
import uuid
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import OperationalError, transaction

from django_jobs import RetryPolicy
from django_jobs.models import Attempt, Job
from django_jobs.store.losses import held_by
from django_jobs.worker.alerts import tell_of_expired
from django_jobs.worker.finish import record_failure
from django_jobs.worker.pool import Pool
from django_jobs.worker.rescue import take_back
from django_jobs.worker.shutdown import Ending
from django_jobs.worker.wake import Wake
from tests.integration.worker.conftest import Declare, run_one, take, the_job
from tests.scenes import Told

pytestmark = pytest.mark.django_db(transaction=True)

SOON = RetryPolicy(base=timedelta(microseconds=1), cap=timedelta(microseconds=1), unknown_attempts=3)


def deaths(told: Told) -> list[dict[str, object]]:
    """Return the alerts about dead letters."""
    return [fields for fields in told.named("owner.alert") if str(fields["reason"]).startswith("dead letter")]


def fail_in_turn(declare: Declare) -> None:
    """Enqueue a job whose errors differ from attempt to attempt."""
    errors = iter([ValueError("the first of all"), KeyError("another"), LookupError("the last of all")])

    def failing() -> None:
        raise next(errors)

    declare(failing, retry=SOON, owner="billing").enqueue()


def test_exhausted_job_holds_its_first_and_last_error_and_tells_once_r39(declare: Declare) -> None:
    """Three different errors: the attempts hold each, the alert and ``explain`` name the first and the last."""
    fail_in_turn(declare)

    with Told() as told:
        for _ in range(3):
            run_one()

    job = the_job()
    assert (job.state, job.dead_reason, job.unknown_count) == ("dead_lettered", "unknown_budget", 3)
    assert (job.error_type, job.payload.error_text) == ("LookupError", "the last of all")
    rows = Attempt.objects.order_by("number").values_list("error_type", "message")
    assert [kind for kind, _ in rows] == ["ValueError", "KeyError", "LookupError"]
    (alert,) = deaths(told)
    assert alert["owner"] == "billing"
    assert alert["message"] == "LookupError: the last of all"
    assert (alert["first_error_type"], alert["first_error"], alert["attempts"]) == ("ValueError", "the first of all", 3)
    assert len(told.named("job.dead")) == 1
    text = StringIO()
    call_command("jobs", "explain", str(job.pk), stdout=text)
    assert "first error, in attempt 1 of 3: ValueError: the first of all" in text.getvalue()
    assert "last error: LookupError: the last of all" in text.getvalue()


def test_death_of_the_worker_as_the_last_end_tells_once_r39(declare: Declare) -> None:
    """A job that failed once and then took its process with it thrice is told of once, with the error it began with."""
    fail_in_turn(declare)
    run_one()
    Job.objects.update(state="queued", lost_count=2, exit_lost_count=2)
    attempt = take()
    Attempt.objects.filter(pk=attempt.attempt_id).update(alone="worker")
    row = Job.objects.get()
    assert row.lease_owner is not None
    found = held_by(worker_id=row.lease_owner, child=row.lease_child or 0, using="default")

    with Told() as told:
        assert take_back(found, exit_status=-9) == []
        assert take_back(found, exit_status=-9) == found, "a second look changes nothing"

    assert (the_job().state, the_job().dead_reason) == ("dead_lettered", "poison")
    (alert,) = deaths(told)
    assert (alert["owner"], alert["job_type"], alert["attempts"]) == ("billing", attempt.claimed.job_type, 2)
    assert (alert["first_error_type"], alert["first_error"]) == ("ValueError", "the first of all")
    assert "SIGKILL" in str(alert["message"])
    assert len(told.named("job.dead")) == 1


@pytest.mark.parametrize("committed", [True, False])
def test_overdue_attempt_whose_commit_got_no_answer_tells_once_r39(
    declare: Declare, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """Whether that COMMIT happened or not, the next look settles it, and the owner hears of the dead letter once."""
    declare(lambda: None, retry=RetryPolicy(unknown_attempts=1), owner="billing").enqueue()
    attempt = take()
    attempt.revoke("it ran past its lease")
    pool = Pool(1, lambda _: None, lambda _: None, lambda: None)
    ending = Ending(pool, Wake(), grace=1)
    original = transaction.Atomic.__exit__

    def lost(self: transaction.Atomic, *raised: object) -> None:
        monkeypatch.setattr(transaction.Atomic, "__exit__", original)
        if committed:
            transaction.get_connection().run_on_commit = []  # a COMMIT without an answer runs no hooks
            original(self, *raised)  # type: ignore[arg-type]
        else:
            original(self, OperationalError, OperationalError("no answer"), None)
        raise OperationalError("no answer")

    ending._overdue = [attempt]
    depth = Depth(monkeypatch, lost)
    with Told() as told:
        depth.arm()
        ending._record_all()
        assert not attempt.recorded
        ending._record_all()
    pool.stop()

    assert attempt.recorded
    assert the_job().state == "dead_lettered"
    assert len(deaths(told)) == 1


class Depth:
    """Makes the end of the next outermost transaction fail."""

    def __init__(self, patch: pytest.MonkeyPatch, end: object) -> None:
        self._patch, self._end = patch, end

    def arm(self) -> None:
        """Begin."""
        original, end = transaction.Atomic.__exit__, self._end

        def leave(block: transaction.Atomic, *raised: object) -> object:
            if len(transaction.get_connection().atomic_blocks) > 1:
                return original(block, *raised)  # type: ignore[arg-type,func-returns-value]
            return end(block, *raised)  # type: ignore[operator]

        self._patch.setattr(transaction.Atomic, "__exit__", leave)


def test_nothing_is_told_of_what_is_rolled_back(declare: Declare) -> None:
    """An end that is recorded inside a transaction is told of when that commits, and not at all when it does not."""
    declare(lambda: None, retry=RetryPolicy(unknown_attempts=1)).enqueue()
    attempt = take()

    with Told() as told, contextlib.suppress(LookupError), transaction.atomic():
        record_failure(attempt, ValueError("no"), settle=lambda _, action: action())
        raise LookupError

    assert the_job().state == "running"
    assert deaths(told) == []
    with Told() as told:
        record_failure(attempt, ValueError("no"))
    assert len(deaths(told)) == 1


@pytest.mark.parametrize("reason", ["expired", "unknown_type", "version"])
def test_end_of_usefulness_is_told_to_the_owner_r39(reason: str) -> None:
    """A job that could not start while it was useful has had no attempt; its owner hears of it all the same."""
    job_id = uuid.uuid4()

    with Told() as told:
        late = {"id": job_id, "job_type": "tests.news", "owner": "shop", "dead_reason": reason}
        tell_of_expired([late], using="default")

    (alert,) = deaths(told)
    assert (alert["job_id"], alert["owner"], alert["reason"], alert["attempts"]) == (
        job_id,
        "shop",
        f"dead letter: {reason}",
        0,
    )
