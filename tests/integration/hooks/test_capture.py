"""Capturing: once per call, before any SQL, stored beside the arguments, and no part of a job's identity."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from django_jobs.exceptions import HookError
from django_jobs.models import Job, JobPayload
from tests.carriers import LANGUAGE, TIME_ZONE, Tenant, Unable, inside
from tests.databases import Server
from tests.declared import charge, plain
from tests.integration.hooks.conftest import Use, noted


def stored() -> list[str | None]:
    """Return what each job carries, in the order of their ids."""
    return list(JobPayload.objects.order_by("pk").values_list("context", flat=True))


def queries(call: Any) -> list[str]:
    """Return the statements of a call."""
    with CaptureQueriesContext(connection) as seen:
        call()
    return [query["sql"] for query in seen]


def test_what_is_active_is_stored_as_one_object(database: Server, use: Use) -> None:
    """The same canonical text on both databases."""
    use(context=(Tenant, LANGUAGE, TIME_ZONE))

    with inside({"id": 7, "schema": "acmé"}), translation.override("de"):
        plain.enqueue(number=1)

    assert stored() == ['{"language":"de","tenant":{"id":7,"schema":"acmé"},"time_zone":"UTC"}']


def test_without_propagators_nothing_is_stored(database: Server) -> None:
    """The column stays null, whatever is active."""
    with inside("acme"), translation.override("de"):
        plain.enqueue(number=1)
        plain.enqueue_many([{"number": 2}])

    assert stored() == [None, None]


def test_nothing_captured_is_nothing_stored(database: Server, use: Use) -> None:
    """Where every propagator returns None, the column is null too."""
    use(context=(Tenant,))
    plain.enqueue(number=1)

    assert stored() == [None]


def test_carrying_costs_no_statement(database: Server, use: Use) -> None:
    """An enqueue, and one of many rows, runs as many statements with a context as without."""

    def both() -> None:
        plain.enqueue(number=1)
        charge.enqueue_many([{"order_id": number} for number in range(3)])

    without = len(queries(both))
    Job.objects.all().delete()
    JobPayload.objects.all().delete()
    use(context=(Tenant, LANGUAGE))
    with inside("acme"):
        with_context = queries(lambda: plain.enqueue(number=1)) + queries(
            lambda: charge.enqueue_many([{"order_id": number} for number in range(10, 13)])
        )

    assert len(with_context) == without
    assert len(set(stored())) == 1
    assert stored()[0] is not None


def test_many_rows_are_captured_once(database: Server, use: Use) -> None:
    """One call is one moment: each of its jobs carries the same, whether or not it has a key."""
    use(context=(Tenant,))

    with inside("acme"):
        charge.enqueue_many({"order_id": number} for number in (1, 2, 2))
        plain.enqueue_many([{"number": 1}])

    assert noted("capture") == ["acme", "acme"]
    assert stored() == ['{"tenant":"acme"}'] * 3


def test_a_duplicate_is_one_whatever_it_carries(database: Server, use: Use) -> None:
    """The context is no part of the fingerprint, and the job keeps what it carried first."""
    use(context=(Tenant,))
    with inside("acme"):
        first = charge.enqueue(order_id=1)

    with inside("other"):
        again = charge.enqueue(order_id=1)
        many = charge.enqueue_many([{"order_id": 1}])

    assert [again.outcome, many[0].outcome] == ["duplicate"] * 2
    assert {again.id, many[0].id} == {first.id}
    assert stored() == ['{"tenant":"acme"}']


@pytest.mark.parametrize("call", [lambda: plain.enqueue(number=1), lambda: plain.enqueue_many([{"number": 1}])])
def test_a_propagator_that_fails_stores_nothing(database: Server, use: Use, call: Any) -> None:
    """The error is typed, names the propagator, masks secrets, and comes before any SQL."""
    use(context=(Tenant, Unable))
    Unable.at_capture = LookupError("no tenant, password=hunter2")

    def refused() -> None:
        with pytest.raises(HookError, match=r"'unable' failed: LookupError: no tenant") as caught:
            call()
        assert caught.value.hook == "unable"
        assert "hunter2" not in str(caught.value)
        assert isinstance(caught.value.__cause__, LookupError)

    assert queries(refused) == []
    assert stored() == []


def test_too_much_is_refused_before_any_statement(database: Server, use: Use) -> None:
    """The bound is a setting; the caller's transaction goes on."""
    use(context=(Tenant,), CONTEXT_MAX_BYTES=100)

    def refused() -> None:
        with inside("x" * 90), pytest.raises(HookError, match="more than CONTEXT_MAX_BYTES"):
            plain.enqueue(number=1)

    with transaction.atomic():
        assert queries(refused) == []
        with inside("x" * 20):
            plain.enqueue(number=2)

    assert [json.loads(text or "") for text in stored()] == [{"tenant": "x" * 20}]


@pytest.mark.django_db(transaction=True)
def test_coroutines_carry_their_own_context(database: Server, use: Use) -> None:
    """What is active in the coroutine that awaits aenqueue() is carried, also while others run beside it."""
    use(context=(Tenant, LANGUAGE))

    async def enqueue(number: int) -> None:
        with inside(f"t{number}"), translation.override(["de", "fr"][number]):
            await asyncio.sleep(0)
            await plain.aenqueue(number=number)
            await plain.aenqueue_many([{"number": number}])

    async def both() -> None:
        await asyncio.gather(enqueue(0), enqueue(1))

    asyncio.run(both())

    rows = JobPayload.objects.values_list("arguments", "context")
    assert len(rows) == 4
    expected = {0: {"language": "de", "tenant": "t0"}, 1: {"language": "fr", "tenant": "t1"}}
    assert all(json.loads(context or "") == expected[json.loads(text)["number"]] for text, context in rows)
