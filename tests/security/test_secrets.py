"""S7, I15: a canary in whatever a handler and its errors carry gets into no text column but the content itself."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError

from django_jobs import RetryPolicy
from django_jobs.models import Attempt, Job, JobPayload, OperatorAction
from django_jobs.operate.canary import CONTENT, Leak, sweep, text_columns
from django_jobs.operate.verify import verify
from tests.factories_pages import one_of_each
from tests.integration.admin.test_hostile import plant
from tests.integration.commands.test_jobs_command import jobs
from tests.integration.operate.stories import Story
from tests.integration.worker.conftest import Declare, run_one

CANARY = "c4nary-hunter2"
SOON = RetryPolicy(base=timedelta(microseconds=1), cap=timedelta(microseconds=1))
DSN = f"postgresql://worker:{CANARY}@db.internal:5432/shop"


def _chained() -> None:
    try:
        raise KeyError(f"api_key={CANARY}")
    except KeyError as error:
        raise ValueError("the provider refused") from error


def _raise(error: BaseException) -> None:
    raise error


CARRIERS = {
    "payload": lambda password: _raise(ValueError(f"password={password}")),
    "header": lambda password: _raise(ValueError(f"sent Authorization: Bearer {password}")),
    "chained cause": lambda password: _chained(),
    "error of the ORM": lambda password: _raise(IntegrityError(f"INSERT ... token='{password}' violates")),
    "dsn": lambda password: _raise(OperationalError(f"connection to {DSN} failed")),
    "dsn as words": lambda password: _raise(OperationalError(f"host=db user=worker password={password} failed")),
    "result": lambda password: {"password": password},
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_s07_canary_gets_out_of_the_payload_nowhere(
    declare: Declare, caplog: pytest.LogCaptureFixture, carrier: str
) -> None:
    """S7: after the handler failed with it, the canary stands in content alone, and in no line of the log."""

    def handler(password: str) -> Any:
        return CARRIERS[carrier](password)

    declare(handler, retry=SOON).enqueue(password=CANARY)
    with caplog.at_level(logging.DEBUG, logger="django_jobs"):
        run_one()

    assert Attempt.objects.get().outcome in ("failed", "succeeded")
    assert CANARY in JobPayload.objects.get().arguments
    assert verify(using="default", canaries=[CANARY]).leaks == ()
    assert CANARY not in "".join(str(vars(record)) + record.getMessage() for record in caplog.records)


@pytest.mark.django_db
def test_s07_sweep_finds_a_canary_in_every_column() -> None:
    """I15: planted into each text column of each table, the canary is found in exactly those that are no content."""
    rows = one_of_each()
    plant(rows, CANARY)

    found = {(leak.table, leak.column) for leak in sweep([CANARY], using="default")}

    assert len(found) > 40
    assert found <= set(text_columns(using="default"))
    assert not found & CONTENT
    assert ("django_jobs_attempt", "traceback") in found
    assert ("django_jobs_operatoraction", "reason") in found


@pytest.mark.django_db
def test_s07_sweep_names_the_rows_and_reads_json() -> None:
    """A leak has its table, its column and the keys of the rows; what JSON escaped is recognised."""
    story = Story().claim().fail(message='said "c4nary\\" hunter2"')
    Story().claim().fail(message="said nothing")

    (leak,) = [leak for leak in sweep(['c4nary" hunter2'], using="default") if leak.column == "message"]

    assert isinstance(leak, Leak)
    assert [row.replace("-", "") for row in leak.rows] == [story.last.pk.hex]


@pytest.mark.django_db
def test_s07_command_tells_leaks(tmp_path: Any) -> None:
    """``jobs verify --canaries FILE`` names table, column and row, and exits with 1."""
    file = tmp_path / "canaries"
    file.write_text(f"{CANARY}\n\n")
    Story().claim().succeed()
    assert jobs("verify", "--canaries", file)[1] == 0
    assert "1 canary: found nowhere but in content." in jobs("verify", "--canaries", file)[0]
    Story().claim().fail(message=CANARY)

    text, code = jobs("verify", "--canaries", file)

    assert code == 1
    assert "LEAK          a canary stands in django_jobs_attempt.message" in text
    assert CANARY not in text


@pytest.mark.parametrize("canary", ["", "short", "   a   "])
def test_s07_canary_that_is_found_by_chance_is_refused(canary: str) -> None:
    """A text of a few signs says nothing when it is found."""
    with pytest.raises(ValueError, match="by chance"):
        sweep([canary], using="default")


@pytest.mark.django_db
def test_s07_audit_holds_no_payload() -> None:
    """A decision's plan tells of a job without its arguments."""
    story = Story(arguments={"password": CANARY}).cancel()

    assert OperatorAction.objects.get().job_id == story.job.pk
    assert Job.objects.count() == 1
    assert sweep([CANARY], using="default") == ()
