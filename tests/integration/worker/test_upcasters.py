"""Jobs of older payload versions under code that reads them: run, compared by key, announced and shown."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.db import OperationalError

from django_jobs import clock
from django_jobs.define import registry
from django_jobs.domain.identity import fingerprint
from django_jobs.exceptions import IdempotencyConflictError
from django_jobs.models import IdempotencyKey, Job, JobPayload
from django_jobs.operate.contract import contract
from django_jobs.operate.doctor import diagnose
from tests.integration.worker.conftest import AGAIN, JOB_TYPE, Declare, claimer, run_one, the_job

pytestmark = pytest.mark.django_db(transaction=True)

Seen = list[tuple[Any, ...]]


def from_first(arguments: dict[str, Any]) -> dict[str, Any]:
    """The first version had whole euros."""
    return {"order_id": arguments["order_id"], "amount": f"{arguments['euros']}.00"}


def declared(declare: Declare, seen: Seen, **options: Any) -> Any:
    """Declare version 2 of the test's job type, which reads version 1 too."""

    def charge(order_id: int, amount: Decimal, currency: str = "EUR") -> None:
        seen.append((order_id, amount, currency))

    return declare(charge, version=2, upcasters={1: from_first}, **options)


def store_first(job: Any, text: str, key: str = "") -> Job:
    """Store a job as the release with version 1 did."""
    result = job.using(key=key or None).enqueue(order_id=1, amount=Decimal("9.00"))
    values = {"payload_version": 1, "payload_fingerprint": fingerprint(text)}
    Job.objects.filter(pk=result.id).update(**values)
    JobPayload.objects.filter(pk=result.id).update(arguments=text)
    IdempotencyKey.objects.filter(job_id=result.id).update(**values)
    return Job.objects.get(pk=result.id)


def test_older_job_runs_with_the_new_arguments(declare: Declare) -> None:
    """The handler gets what the upcaster made, restored by its annotations; what is stored stays as it was."""
    seen: Seen = []
    store_first(declared(declare, seen), '{"euros":7,"order_id":1}')

    assert run_one().outcome == "succeeded"

    assert seen == [(1, Decimal("7.00"), "EUR")]
    assert JobPayload.objects.get().arguments == '{"euros":7,"order_id":1}'


def test_payload_that_no_upcaster_can_read_is_left_to_a_human(declare: Declare) -> None:
    """One attempt, no code of the handler, and a dead letter that names the upcaster."""
    seen: Seen = []
    store_first(declared(declare, seen), '{"order_id":1}')

    attempt = run_one()

    assert (the_job().state, the_job().dead_reason, seen) == ("dead_lettered", "payload", [])
    assert "The upcaster of tests.handler for version 1 failed: KeyError: 'euros'" in attempt.message


def test_key_of_an_older_job_is_compared(declare: Declare) -> None:
    """The same meaning in another version is a duplicate like any other, another meaning a conflict."""
    job = declared(declare, [])
    older = store_first(job, '{"euros":7,"order_id":1}', key="order:1")
    again = job.using(key="order:1")

    same = again.enqueue(order_id=1, amount=Decimal("7.00"))
    assert (same.id, same.outcome, same.version_differs) == (older.pk, "duplicate", False)
    (many,) = again.enqueue_many([{"order_id": 1, "amount": Decimal("7.00")}])
    assert (many.outcome, many.version_differs) == ("duplicate", False)
    with pytest.raises(IdempotencyConflictError):
        again.enqueue(order_id=1, amount=Decimal("8.00"))
    (conflict,) = again.enqueue_many([{"order_id": 1, "amount": Decimal("8.00")}])
    assert conflict.outcome == "conflict"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"order_id":1}'])
def test_key_of_an_older_job_that_cannot_be_read_answers_as_before(declare: Declare, text: str) -> None:
    """Removed, broken or strange arguments cannot be compared: a duplicate that says so."""
    job = declared(declare, [])
    store_first(job, text, key="order:1")

    result = job.using(key="order:1").enqueue(order_id=1, amount=Decimal("7.00"))

    assert (result.outcome, result.version_differs) == ("duplicate", True)


def test_newer_job_is_not_compared_by_older_code(declare: Declare) -> None:
    """Code of version 2 cannot know what version 3 means."""
    job = declared(declare, [])
    newer = store_first(job, '{"order_id":1}', key="order:1")
    IdempotencyKey.objects.filter(job_id=newer.pk).update(payload_version=3)

    result = job.using(key="order:1").enqueue(order_id=1, amount=Decimal("7.00"))

    assert (result.outcome, result.version_differs) == ("duplicate", True)


def test_older_versions_are_announced_and_shown(declare: Declare) -> None:
    """Workers say that they run them, so that nobody sets them aside; contract and doctor know it."""
    job = declared(declare, [])
    store_first(job, '{"euros":7,"order_id":1}')
    assert {f"{JOB_TYPE} 1", f"{JOB_TYPE} 2"} <= set(registry.kinds())
    (shown,) = [item for item in contract().jobs if item.job_type == JOB_TYPE]
    assert (shown.version, shown.reads_versions) == (2, (1,))
    assert "unknown-payload-version" not in {finding.id for finding in diagnose(using="default").findings}
    assert json.loads(JobPayload.objects.get().arguments) == {"euros": 7, "order_id": 1}
    assert len(claimer().take(1, 0)) == 1


def test_key_is_compared_where_an_upcaster_returns_python_values(declare: Declare) -> None:
    """A decimal that an upcaster made gives the same text as one that a producer passed, and runs as one."""
    seen: Seen = []

    def charge(order_id: int, amount: Decimal, day: date = date(2026, 3, 1)) -> None:
        seen.append((order_id, amount, day))

    upcasters = {1: lambda arguments: {"order_id": arguments["order_id"], "amount": Decimal(arguments["euros"])}}
    job = declare(charge, version=2, upcasters=upcasters)
    older = store_first(job, '{"euros":7,"order_id":1}', key="order:1")

    same = job.using(key="order:1").enqueue(order_id=1, amount=Decimal(7))
    assert (same.id, same.outcome, same.version_differs) == (older.pk, "duplicate", False)
    with pytest.raises(IdempotencyConflictError):
        job.using(key="order:1").enqueue(order_id=1, amount=Decimal(8))
    assert run_one().outcome == "succeeded"
    assert seen == [(1, Decimal(7), date(2026, 3, 1))]


def test_job_of_before_a_new_parameter_runs_with_its_default(declare: Declare) -> None:
    """A deploy that adds a parameter with a typed default does not dead-letter what waits."""
    seen: Seen = []

    def charge(order_id: int, fee: Decimal = Decimal("0.50")) -> None:
        seen.append((order_id, fee))

    job = declare(charge)
    result = job.enqueue(order_id=1)
    text = '{"order_id":1}'
    Job.objects.filter(pk=result.id).update(payload_fingerprint=fingerprint(text))
    JobPayload.objects.filter(pk=result.id).update(arguments=text)

    assert run_one().outcome == "succeeded"
    assert seen == [(1, Decimal("0.50"))]


def test_outage_in_an_upcaster_dead_letters_nothing(declare: Declare) -> None:
    """The job is tried again as after any outage, and runs when it is over."""
    seen: Seen = []
    away = [OperationalError("server closed the connection unexpectedly")]

    def charge(order_id: int, amount: Decimal) -> None:
        seen.append((order_id, amount))

    def ask(arguments: dict[str, Any]) -> dict[str, Any]:
        if away:
            raise away.pop()
        return from_first(arguments)

    store_first(declare(charge, version=2, upcasters={1: ask}), '{"euros":7,"order_id":1}')

    attempt = run_one()
    assert (the_job().state in AGAIN, attempt.error_class, seen) == (True, "transient", [])
    Job.objects.update(state="queued", available_at=clock.now())
    assert run_one().outcome == "succeeded"
    assert seen == [(1, Decimal("7.00"))]


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError()])
def test_key_of_an_older_job_answers_while_what_its_upcaster_asks_is_away(declare: Declare, error: Exception) -> None:
    """The key has its job; whether the arguments are the same cannot be said now."""

    def charge(order_id: int, amount: Decimal) -> None:
        """Do nothing."""

    def ask(arguments: dict[str, Any]) -> dict[str, Any]:
        raise error

    job = declare(charge, version=2, upcasters={1: ask})
    store_first(job, '{"euros":7,"order_id":1}', key="order:1")

    result = job.using(key="order:1").enqueue(order_id=1, amount=Decimal(7))

    assert (result.outcome, result.version_differs) == ("duplicate", True)
