"""What cannot be stored is refused by a typed error before any SQL, alike on both databases."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_jobs import EnqueueResult
from django_jobs.exceptions import DefinitionError, JobsError, KeyFormatError, PayloadError
from django_jobs.models import Job
from tests.databases import Server
from tests.declared import charge, plain, strict
from tests.factories import WorkerFactory

Call = Callable[[], object]


class NoOffset(tzinfo):
    """A zone that knows no offset, which makes its datetimes naive."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        """Return nothing."""
        return None

    def dst(self, moment: datetime | None) -> timedelta | None:
        """Return nothing."""
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        """Return nothing."""
        return None


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


VALUES: dict[str, Any] = {
    "NaN": float("nan"),
    "infinity": float("inf"),
    "Decimal NaN": Decimal("NaN"),
    "NUL": "a\x00b",
    "half a character": "\ud800",
    "set": {1},
    "bytes": b"x",
    "large int": 2**53,
    "key that is no text": {1: 2},
    "naive datetime": datetime(2026, 1, 1),  # noqa: DTZ001
    "64 KiB and a bit": "x" * 65536,
    "21 levels": _nested(20),
    "object": object(),
    "function": len,
    "generator": (number for number in [1]),
}

ARGUMENTS: dict[str, tuple[Call, str]] = {
    "missing parameter": (lambda: charge.enqueue(), "missing a required argument: 'order_id'"),
    "unknown parameter": (lambda: charge.enqueue(order_id=1, colour="red"), "unexpected keyword argument 'colour'"),
    "too many": (lambda: charge.enqueue(1, 2, 3), "too many positional"),
    "given twice": (lambda: charge.enqueue(1, order_id=1), "multiple values"),
    "empty key value": (lambda: charge.enqueue(order_id=""), "order_id is empty"),
    "key of None": (lambda: charge.enqueue(order_id=None), "order_id is empty"),
    "key too long": (lambda: charge.enqueue(order_id="x" * 300), "shorten it"),
    "subject too long": (lambda: charge.using(key="a").enqueue(order_id="x" * 220), "subject has"),
}

OPTIONS: dict[str, dict[str, Any]] = {
    "unknown option": {"colour": "red"},
    "version is no option": {"version": 2},
    "priority above 100": {"priority": 101},
    "priority below -100": {"priority": -101},
    "priority True": {"priority": True},
    "priority text": {"priority": "high"},
    "priority None": {"priority": None},
    "priority fraction": {"priority": 1.5},
    "naive run_after": {"run_after": datetime(2026, 1, 1)},  # noqa: DTZ001
    "run_after of no offset": {"run_after": datetime(2026, 1, 1, tzinfo=NoOffset())},
    "run_after before time": {"run_after": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))},
    "run_after number": {"run_after": 60},
    "run_after text": {"run_after": "2026-01-01"},
    "negative run_after": {"run_after": timedelta(seconds=-1)},
    "run_after in eleven years": {"run_after": timedelta(days=4000)},
    "detached text": {"detached": "yes"},
    "detached None": {"detached": None},
}

NAMES: dict[str, dict[str, Any]] = {
    "database list": {"database": []},
    "database zero": {"database": 0},
    "queue empty": {"queue_name": ""},
    "queue None": {"queue_name": None},
    "queue not ASCII": {"queue_name": "mäil"},
    "queue with newline": {"queue_name": "a\nb"},
    "queue too long": {"queue_name": "q" * 101},
    "queue number": {"queue_name": 5},
    "tenant None": {"tenant": None},
    "tenant not ASCII": {"tenant": "ü"},
    "tenant too long": {"tenant": "t" * 65},
    "tenant number": {"tenant": 5},
    "tenant with spaces around": {"tenant": " a"},
    "subject None": {"subject": None},
    "subject too long": {"subject": "s" * 201},
    "key empty": {"key": ""},
    "key number": {"key": 5},
    "key not ASCII": {"key": "ü"},
    "key too long": {"key": "k" * 256},
    "key with NUL": {"key": "a\x00"},
    "database number": {"database": 5},
}


def _refused(call: Call, error: type[JobsError], match: str | None = None) -> None:
    with CaptureQueriesContext(connection) as queries, pytest.raises(error, match=match):
        call()
    assert len(queries) == 0


@pytest.mark.parametrize("name", VALUES)
def test_value_that_cannot_be_stored_is_refused(database: Server, name: str) -> None:
    """The message names the argument; no statement was run."""
    _refused(lambda: plain.enqueue(number=VALUES[name]), PayloadError)


@pytest.mark.parametrize("name", VALUES)
def test_value_that_cannot_be_stored_is_refused_in_bulk(database: Server, name: str) -> None:
    """The message names the row too, and the good rows are not stored either."""
    rows = [{"number": 1}, {"number": 2}, {"number": VALUES[name]}]

    _refused(lambda: plain.enqueue_many(rows), PayloadError, "^Row 2: ")


def test_model_instance_is_refused_with_the_mend(database: Server) -> None:
    """An instance is a copy of a row that may be gone: its key must be passed."""
    worker = WorkerFactory()

    _refused(lambda: plain.enqueue(number=worker), PayloadError, "pass its pk")


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_that_do_not_fit_are_refused(database: Server, name: str) -> None:
    """The producer hears of it, not a worker hours later."""
    call, match = ARGUMENTS[name]

    _refused(call, PayloadError, match)


@pytest.mark.parametrize("name", OPTIONS)
def test_option_that_cannot_work_is_refused(database: Server, name: str) -> None:
    """Before the first argument is looked at."""
    _refused(lambda: plain.using(**OPTIONS[name]), DefinitionError)


@pytest.mark.parametrize("name", NAMES)
def test_name_that_cannot_be_stored_is_refused(database: Server, name: str) -> None:
    """Names are printable ASCII of bounded length, on both databases."""
    _refused(lambda: charge.using(**NAMES[name]), KeyFormatError)


def test_scope_that_is_too_long_with_its_tenant_is_refused(database: Server) -> None:
    """Encoding makes a name longer: what is stored must still fit."""
    wide = charge.using(tenant="t")
    options = wide.options

    _refused(
        lambda: type(options)(**{**_fields(options), "key_scope": "%" * 150}).changed(), KeyFormatError, "key_scope"
    )


def _fields(options: Any) -> dict[str, Any]:
    return {name: getattr(options, name) for name in type(options).__dataclass_fields__}


def test_instant_far_ahead_is_refused(database: Server) -> None:
    """A time in milliseconds taken for seconds would hide a job for centuries."""
    far = plain.using(run_after=datetime(9000, 1, 1, tzinfo=UTC))

    _refused(lambda: far.enqueue(), DefinitionError, "run_after is more than 3660 days ahead")


def test_unknown_database_is_refused(database: Server) -> None:
    """The message lists the databases that there are."""
    _refused(lambda: plain.using(database="nowhere").enqueue(), DefinitionError, "no database 'nowhere'.*default")


@pytest.mark.parametrize("row", [5, None, "text", ["a"], {1: 2}])
def test_row_that_is_no_dict_of_names_is_refused(database: Server, row: Any) -> None:
    """Rows are dicts by parameter name; the message gives the place of the wrong one."""
    _refused(lambda: plain.enqueue_many([{"number": 1}, row]), PayloadError, "^Row 1: .*dict by parameter name")


def test_limits_come_from_the_settings(database: Server) -> None:
    """A project may store less or more than the default."""
    with override_settings(DJANGO_JOBS={"PAYLOAD_MAX_BYTES": 20, "PAYLOAD_MAX_DEPTH": 1}):
        _refused(lambda: plain.enqueue(number="x" * 20), PayloadError, "more than 20")
        _refused(lambda: plain.enqueue(number=[1]), PayloadError, "deeper than 1")


def test_largest_allowed_values_are_stored_alike(database: Server) -> None:
    """What is at the limit goes in and comes out the same on both databases."""
    text = "ü" * 20_000 + "\U0001f600" * 100 + "\\\"'%s{}\u2028\x7f"
    plain.using(queue_name="q" * 100, tenant="t" * 64, subject="s" * 200, key="k" * 255, priority=-100).enqueue(
        number=text, more=_nested(19), whole=2**53 - 1, tiny=5e-324
    )

    job = Job.objects.get()
    assert job.payload.arguments.count("ü") == 20_000
    assert (job.queue_name, job.tenant, job.subject) == ("q" * 100, "t" * 64, "s" * 200)
    assert (
        plain.using(tenant="t" * 64, key="k" * 255)
        .enqueue(number=text, more=_nested(19), whole=2**53 - 1, tiny=5e-324)
        .outcome
        == "duplicate"
    )


@pytest.mark.parametrize("rows", [None, 5, plain])
def test_rows_that_are_none_are_refused(database: Server, rows: Any) -> None:
    """What cannot be gone through is no list of rows."""
    _refused(lambda: plain.enqueue_many(rows), PayloadError, "takes dicts of arguments, not")


def test_deepest_payload_that_may_be_allowed_is_stored(database: Server) -> None:
    """At the largest bound of the setting no stack overflows, neither here nor where it is read."""
    with override_settings(DJANGO_JOBS={"PAYLOAD_MAX_DEPTH": 100}):
        plain.enqueue(number=_nested(99))
        _refused(lambda: plain.enqueue(number=_nested(100)), PayloadError, "deeper than 100")
        _refused(lambda: plain.enqueue(number=_nested(900)), PayloadError, "deeper than 100")
        assert plain.definition.restore(json.loads(Job.objects.get().payload.arguments))["number"] == _nested(99)


@pytest.mark.parametrize("name", ["self", "func", "fn", "loop", "thread_sensitive", "args", "using", "call", "name"])
def test_coroutine_may_pass_a_parameter_of_any_name(database: Server, name: str) -> None:
    """What runs the call in a thread has parameters of its own, and none of them is in the way."""

    async def call() -> EnqueueResult:
        return await plain.aenqueue(**{name: 7})

    result = async_to_sync(call)()

    assert json.loads(Job.objects.get(pk=result.id).payload.arguments)[name] == 7


def test_parameter_may_have_any_name() -> None:
    """Names that the methods use themselves do not collide with the handler's."""
    with pytest.raises(PayloadError, match="unexpected keyword argument 'self'"):
        strict.enqueue(order_id=1, self=2)
