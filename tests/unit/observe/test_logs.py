"""Lines for machines: constant messages, plain data, no words of people; and the attempt in a handler's lines."""

from __future__ import annotations

import logging
import uuid
from datetime import timedelta

import pytest

from django_jobs import telemetry
from django_jobs.observe.logs import JobContextFilter, extra_of, log

ENDED = {"job_id": uuid.UUID(int=1), "number": 3, "queue_name": "payments", "duration_s": 1.5, "error_class": ""}


@pytest.mark.parametrize(
    ("fields", "level", "message"),
    [
        ({"outcome": "succeeded"}, logging.INFO, "attempt.ended"),
        ({"outcome": "snoozed"}, logging.INFO, "attempt.ended"),
        ({"outcome": "retry"}, logging.WARNING, "attempt.retry"),
        ({"outcome": "lost"}, logging.INFO, "attempt.lost"),
        ({"outcome": "lost", "dead_reason": "poison"}, logging.ERROR, "job.dead_lettered"),
        ({"outcome": "dead_lettered", "dead_reason": "age"}, logging.ERROR, "job.dead_lettered"),
    ],
)
def test_one_line_at_the_end_of_an_attempt(
    caplog: pytest.LogCaptureFixture, fields: dict[str, str], level: int, message: str
) -> None:
    """Its level says whether somebody should look; its data is in attributes."""
    with caplog.at_level(logging.DEBUG, logger="django_jobs"):
        log("attempt.ended", {**ENDED, **fields})
    (record,) = caplog.records

    assert (record.name, record.levelno, record.getMessage()) == ("django_jobs.attempt", level, message)
    assert (record.job_id, record.attempt, record.queue, record.duration_s) == (
        str(uuid.UUID(int=1)),
        3,
        "payments",
        1.5,
    )
    assert not hasattr(record, "error_class")


@pytest.mark.parametrize(
    ("event", "logger", "message"),
    [
        ("attempt.started", "attempt", "attempt.started"),
        ("job.rescue", "lease", "lease.lost"),
        ("lease.refused", "lease", "write.fenced"),
        ("effect.unknown", "effect", "effect.ambiguous"),
        ("pause.set", "operator", "operator.pause"),
        ("prune.jobs", "maintenance", "prune.jobs"),
        ("delivery.settle", "outbox", "delivery.settle"),
    ],
)
def test_event_has_its_logger(caplog: pytest.LogCaptureFixture, event: str, logger: str, message: str) -> None:
    """A site can send each kind somewhere else."""
    with caplog.at_level(logging.DEBUG, logger="django_jobs"):
        log(event, {"job_id": uuid.uuid4()})

    assert [(record.name, record.getMessage()) for record in caplog.records] == [(f"django_jobs.{logger}", message)]


def test_event_without_a_line_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    """What happens thousands of times a second is counted, not logged."""
    with caplog.at_level(logging.DEBUG, logger="django_jobs"):
        log("job.claim", {"job_id": uuid.uuid4()})

    assert caplog.records == []


def test_extra_is_plain_and_takes_no_reserved_name() -> None:
    """Spans are seconds under a name that says so; words of people are left out; nothing overwrites a record's own."""
    found = extra_of(
        {"delay": timedelta(milliseconds=1500), "reason": "secret", "message": "secret", "args": 1, "name": "charge"}
    )

    assert found == {"delay_s": 1.5, "subject_name": "charge"}
    logging.getLogger("tests").makeRecord("n", 20, "f", 1, "m", (), None, extra=found)


def test_filter_adds_the_attempt_and_replaces_nothing() -> None:
    """Inside a job the attributes are its own; what the handler gave itself stays."""
    token = telemetry.attempt_facts.set({"job_id": uuid.UUID(int=7), "number": 2, "queue_name": "q", "job_type": "t"})
    try:
        record = logging.makeLogRecord({"queue": "mine"})
        assert JobContextFilter().filter(record)
    finally:
        telemetry.attempt_facts.reset(token)

    assert (record.job_id, record.attempt, record.queue, record.job_type) == (str(uuid.UUID(int=7)), 2, "mine", "t")


def test_filter_outside_of_a_job_leaves_empty_attributes() -> None:
    """A format string that names them works everywhere."""
    record = logging.makeLogRecord({})
    JobContextFilter().filter(record)

    assert {getattr(record, name) for name in JobContextFilter.names} == {""}
