"""F32: a stored row that no longer fits: one attempt, no code of the project, a dead letter that names the field."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from django_jobs import clock, store
from django_jobs.domain.identity import fingerprint
from django_jobs.models import Attempt, Job, JobPayload, Worker
from django_jobs.worker.execute import execute
from tests.factories import WorkerFactory
from tests.integration.worker.conftest import Declare, claimer, declare, run, table, take, the_job, write
from tests.queries import asked
from tests.scenes import Told

__all__ = ["declare", "table"]

pytestmark = pytest.mark.django_db(transaction=True)

Table = Callable[[], list[int]]
HOUR = timedelta(hours=1)
PROJECT = ("testproject", "tests")


def no_code_runs(n: Decimal, note: str = "", api_key: str = "sk_live_4111") -> None:
    """Write a row: nothing of it may ever be there."""
    write(1)


def misfit(declare: Declare, text: str, *, signed: bool = True, takes_context: bool = False) -> Attempt:
    """Store this text as the payload of a job, run what is due, and check that no code of the project ran."""
    handler: Callable[..., None] = no_code_runs
    if takes_context:

        def handler(context: Any, n: Decimal, note: str = "", api_key: str = "sk_live_4111") -> None:
            write(1)

    declare(handler, takes_context=takes_context).enqueue(n=Decimal(1))
    JobPayload.objects.update(arguments=text)
    if signed:
        Job.objects.update(payload_fingerprint=fingerprint(text))
    attempt = take()
    with Told() as told:
        run(attempt)
    assert [dead["reason"] for dead in told.named("job.dead")] == ["payload"]
    assert claimer().take(1, 0) == [], "it is never tried again"
    return Attempt.objects.get()


@pytest.mark.parametrize("takes_context", [False, True], ids=["plain", "context"])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{not json", "is not JSON"),
        ("", "is not JSON"),
        ("[1]", "is a list, not an object with the arguments' names"),
        ("null", "is a NoneType, not an object"),
        ("{}", "missing a required argument: 'n'"),
        ('{"n":"1","removed":2}', "got an unexpected keyword argument 'removed'"),
        ('{"n":"one"}', "The stored argument 'n' does not fit"),
        ('{"n":["1"]}', "The stored argument 'n' does not fit"),
    ],
    ids=["not-json", "empty", "list", "null", "missing", "extra", "other-text", "other-type"],
)
def test_f32_payload_that_no_longer_fits_is_a_dead_letter_that_names_the_field(
    declare: Declare,
    table: Table,
    text: str,
    told: str,
    takes_context: bool,
) -> None:
    """One attempt, no handler code, reason 'payload', and a message that says which argument it was."""
    attempt = misfit(declare, text, takes_context=takes_context)

    job = the_job()
    assert (job.state, job.dead_reason, job.fence, job.unknown_count) == ("dead_lettered", "payload", 1, 0)
    assert (attempt.outcome, attempt.error_class, attempt.error_type.rpartition(".")[2]) == (
        "failed",
        "permanent",
        "PayloadError",
    )
    assert told in attempt.message
    assert "4111" not in attempt.message + attempt.traceback, "a default that may be secret is not told"
    assert table() == []


def test_f32_payload_that_was_changed_is_a_dead_letter(declare: Declare, table: Table) -> None:
    """Arguments that fit, but are not those that were enqueued: the fingerprint says so."""
    attempt = misfit(declare, '{"n":"2","note":"","api_key":"x"}', signed=False)

    assert the_job().dead_reason == "payload"
    assert "its fingerprint differs" in attempt.message
    assert table() == []


def test_f32_payload_that_does_not_fit_asks_for_nothing_of_the_project(declare: Declare, table: Table) -> None:
    """Between the claim and the dead letter no row but those of this package is read, and no module is imported."""
    declare(no_code_runs).enqueue(n=Decimal(1))
    Job.objects.update(payload_fingerprint=fingerprint('{"n":[]}'))
    JobPayload.objects.update(arguments='{"n":[]}')
    attempt = take()
    before = set(sys.modules)

    with asked() as statements:
        execute(attempt)

    assert the_job().dead_reason == "payload"
    assert [sql for sql in statements if "django_jobs_" not in sql] == []
    assert [name for name in set(sys.modules) - before if name.partition(".")[0] in PROJECT] == []


def test_f32_version_that_nobody_reads_waits_for_its_code_and_is_then_a_dead_letter(
    declare: Declare,
    table: Table,
) -> None:
    """A payload version that no handler declares costs no attempt: it waits aside for the grace, then names its reason."""
    declare(no_code_runs, version=2).enqueue(n=Decimal(1))
    Job.objects.update(payload_version=1)
    WorkerFactory(job_types=json.dumps(["tests.handler"]), kinds=json.dumps(["tests.handler 2"]))
    judge = WorkerFactory(started_at=clock.now() - 2 * HOUR)

    assert claimer().take(1, 0) == []
    job = the_job()
    assert (job.state, job.lane != "", job.fence) == ("scheduled", True, 0)
    assert store.expire(using="default", judge=judge.pk) == [], "within the grace somebody may still bring the code"

    Job.objects.update(available_at=clock.now() - 2 * HOUR)
    Worker.objects.exclude(pk=judge.pk).update(started_at=clock.now() - 2 * HOUR)
    assert [row["dead_reason"] for row in store.expire(using="default", judge=judge.pk)] == ["version"]

    job = the_job()
    assert (job.state, job.dead_reason, job.fence) == ("dead_lettered", "version", 0)
    assert not Attempt.objects.exists()
    assert table() == []
