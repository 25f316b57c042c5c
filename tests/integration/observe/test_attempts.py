"""Each end of a real attempt is told once, with its groups; a handler's own lines carry the attempt; secrets are nowhere."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import Any

import pytest

from django_jobs import JobContext, RetryPolicy
from django_jobs.exceptions import PermanentError, Snooze
from django_jobs.models import Job
from django_jobs.observe.logs import JobContextFilter
from django_jobs.store.losses import held_by
from django_jobs.worker.finish import give_back
from django_jobs.worker.rescue import take_back
from tests.integration.worker.conftest import Declare, run, run_one, take
from tests.scenes import Told

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "hunter2-s3cret"
SOON = RetryPolicy(base=timedelta(microseconds=1), cap=timedelta(microseconds=1))


def _raises(error: Exception) -> Any:
    def fail() -> None:
        raise error

    return fail


def _in_block(context: JobContext) -> None:
    with context.complete():
        pass
    raise LookupError("after the end")


@pytest.mark.parametrize(
    ("handler", "options", "outcome", "error_class"),
    [
        (lambda: None, {}, "succeeded", ""),
        (lambda: None, {"atomic": False}, "succeeded", ""),
        (_in_block, {"takes_context": True}, "succeeded", ""),
        (_raises(ValueError("no")), {"retry": SOON}, "retry", "unknown"),
        (_raises(ConnectionError("no")), {}, "retry", "transient"),
        (_raises(PermanentError("no")), {}, "dead_lettered", "permanent"),
        (_raises(Snooze(timedelta(minutes=1))), {}, "snoozed", ""),
    ],
)
def test_end_is_told_once(
    declare: Declare,
    handler: Any,
    options: dict[str, Any],
    outcome: str,
    error_class: str,
) -> None:
    """With its outcome and class, its time, and what metrics are grouped by."""
    declare(handler, queue_name="mail", priority=-5, **options).enqueue()
    with Told() as told:
        run_one()

    (end,) = told.named("attempt.ended")
    assert (end["outcome"], end["error_class"]) == (outcome, error_class)
    assert (end["job_type"], end["queue_name"], end["priority"]) == ("tests.handler", "mail", -5)
    assert 0 <= float(str(end["duration_s"])) < 60
    assert (len(told.named("attempt.started")), len(told.named("attempt.done"))) == (1, 1)
    (claim,) = told.named("job.claim")
    assert isinstance(claim["delay"], timedelta)
    assert claim["delay"] >= timedelta(0)


def test_lost_attempt_is_told_by_whoever_takes_it_back(declare: Declare) -> None:
    """Its holder's late end is refused and is told as nothing else."""
    declare(lambda: None, queue_name="mail").enqueue()
    attempt = take()
    with Told() as told:
        found = held_by(worker_id=_owner(attempt), child=0, using="default")
        assert take_back(found, exit_status=-9) == []
        run(attempt)

    (end,) = told.named("attempt.ended")
    assert (end["outcome"], end["cause"], end["queue_name"]) == ("lost", "exit", "mail")
    assert "duration_s" not in end
    (refusal,) = told.named("lease.refused")
    assert refusal["queue_name"] == "mail"


def _owner(attempt: Any) -> Any:
    return Job.objects.get(pk=attempt.job_id).lease_owner


def test_attempt_that_was_given_back_is_released(declare: Declare) -> None:
    """A worker that stops tells it too."""
    declare(lambda: None).enqueue()
    attempt = take()
    with Told() as told:
        assert give_back(attempt, message="stopping")

    assert [end["outcome"] for end in told.named("attempt.ended")] == ["released"]


def test_lines_of_a_handler_carry_the_attempt(declare: Declare, caplog: pytest.LogCaptureFixture) -> None:
    """Through the filter each line knows its job, without the handler's help; after it, no line does."""
    caplog.handler.addFilter(JobContextFilter())
    own = logging.getLogger("shop.tests")

    def handler() -> None:
        own.warning("inside")

    result = declare(handler, queue_name="mail").enqueue()
    run_one()
    own.warning("outside")
    lines = {record.getMessage(): record for record in caplog.records if record.name == "shop.tests"}

    inside = lines["inside"]
    assert (inside.job_id, inside.attempt, inside.queue) == (str(result.id), 1, "mail")
    assert (inside.job_type, inside.worker, inside.correlation_id) == ("tests.handler", "test", str(result.id))
    assert inside.code_version
    assert lines["outside"].job_id == ""


@pytest.mark.parametrize("where", ["raised", "after completion", "in a nested value"])
def test_r72_no_log_line_holds_a_secret(
    declare: Declare,
    caplog: pytest.LogCaptureFixture,
    where: str,
) -> None:
    """R72: a password in the payload, in a URL and in an error's message is in no line of ours, at DEBUG."""

    def handler(context: JobContext, password: str, nested: Any) -> None:
        if where == "after completion":
            with context.complete():
                pass
        if where == "in a nested value":
            raise ValueError(f"cannot use {nested}")
        raise ValueError(f"https://user:{password}@example.com/?token={password} said password={password}")

    declare(handler, takes_context=True, retry=SOON).enqueue(
        password=SECRET, nested=[{"url": f"https://example.com/?token={SECRET}"}, {"api_key": SECRET}]
    )
    with caplog.at_level(logging.DEBUG, logger="django_jobs"):
        run_one()
    ours = [record for record in caplog.records if record.name.startswith("django_jobs")]
    text = [caplog.handler.format(record) + json.dumps(vars(record), default=str) for record in ours]

    assert len(ours) >= 2
    assert [line for line in text if SECRET in line] == []
