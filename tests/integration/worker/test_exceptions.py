"""Exceptions and results of every kind: a defined end of the attempt, with the true class and message, never of a thread."""

from __future__ import annotations

import asyncio
import types
import warnings
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection
from django.utils.translation import gettext_lazy

from django_jobs import JobContext, RetryPolicy, telemetry
from django_jobs.exceptions import EffectUncertain, Snooze, TransientError
from django_jobs.models import Attempt
from tests.integration.worker import odd
from tests.integration.worker.conftest import Declare, run, run_one, take, the_job, write

pytestmark = pytest.mark.django_db(transaction=True)

Table = Callable[[], list[int]]


def named(name: str, **changes: Any) -> type[Exception]:
    """Return an exception type with other class attributes."""
    return type(name, (Exception,), changes)


def cyclic() -> BaseException:
    """Return an error that is its own grandfather."""
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    first.__context__, second.__context__ = second, first
    return first


def long_traceback() -> BaseException:
    """Return an error with a traceback of 100,000 frames."""
    error = ValueError("far away")
    try:
        raise error
    except ValueError:
        trace = error.__traceback__
    assert trace is not None
    for _ in range(100_000):
        trace = types.TracebackType(trace, trace.tb_frame, 0, 1)
    return error.with_traceback(trace)


def throw(error: BaseException) -> None:
    """Raise it."""
    raise error


def break_transaction() -> None:
    """Make the database refuse the transaction, swallow that, and go on."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT no_such_column FROM no_such_table")
    except DatabaseError:
        pass
    write(2)
    raise LookupError("after that")


def warn() -> None:
    """Treat warnings as errors, as test and production settings may."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.warn("deprecated", DeprecationWarning, stacklevel=1)


def bury() -> None:
    """Let something be collected that raises then, and fail in another way."""
    mourned = odd.Mourned()
    del mourned
    raise ValueError("after the burial")


KINDS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "system-exit-0": (lambda: throw(SystemExit(0)), "SystemExit", "0"),
    "system-exit-object": (lambda: throw(SystemExit(object())), "SystemExit", "<object"),
    "memory-error": (lambda: throw(MemoryError()), "MemoryError", ""),
    "cancelled": (lambda: throw(asyncio.CancelledError("by a task")), "asyncio.exceptions.CancelledError", "by a task"),
    "base-group": (
        lambda: throw(BaseExceptionGroup("outer", [BaseExceptionGroup("inner", [KeyboardInterrupt(), SystemExit(1)])])),
        "BaseExceptionGroup",
        "outer (1 sub-exception)",
    ),
    "hiding-group": (lambda: throw(odd.HidingGroup("hidden", [ValueError("a")])), "HidingGroup", "hidden"),
    "no-text": (lambda: throw(odd.NoTextError("x")), "NoTextError", "its __str__ raised"),
    "wrong-text": (lambda: throw(odd.WrongTextError("x")), "WrongTextError", "its __str__ raised"),
    "huge-text": (lambda: throw(ValueError("x" * 100_000_000)), "ValueError", "xxx"),
    "no-module": (lambda: throw(named("Lost", __module__=None)("m")), "Lost", "m"),
    "numeric-module": (lambda: throw(named("Lost", __module__=7)("m")), "Lost", "m"),
    "odd-name": (
        lambda: throw(named("Odd", __module__="m\ud800", __qualname__="\x00 odd")("m")),
        "m\\ud800.\\x00 odd",
        "m",
    ),
    "trapped": (lambda: throw(odd.TrappedError("caught")), "TrappedError", "caught"),
    "changeling": (lambda: throw(odd.ChangelingError("what am I")), "ChangelingError", "what am I"),
    "cyclic": (lambda: throw(cyclic()), "ValueError", "first"),
    "long-traceback": (lambda: throw(long_traceback()), "ValueError", "far away"),
    "unstorable-text": (lambda: throw(ValueError("a\x00b\ud800c")), "ValueError", "a\\x00b\\ud800c"),
    "syntax-error": (lambda: compile("def broken(:", "<text>", "exec"), "SyntaxError", "invalid syntax"),
    "broken-transaction": (break_transaction, "", ""),
    "warning": (warn, "DeprecationWarning", "deprecated"),
    "unpicklable": (lambda: throw(odd.HoldingError()), "HoldingError", "holds a lock"),
    "finalizer": (bury, "ValueError", "after the burial"),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "plain"])
def test_every_exception_is_recorded_and_the_thread_goes_on_r37(declare: Declare, table: Table, atomic: bool) -> None:
    """Each kind ends its attempt as failed with its class and message, and the next job of the thread succeeds."""

    def handler(name: str) -> None:
        if name:
            KINDS[name][0]()
        write(1)

    job = declare(handler, atomic=atomic)
    attempts = []
    for name in KINDS:
        for argument in (name, ""):
            job.enqueue(name=argument)
            attempts.append(take())

    run(*attempts)

    rows = [Attempt.objects.get(pk=attempt.attempt_id) for attempt in attempts]
    for place, (name, (_, kind, message)) in enumerate(KINDS.items()):
        failed, after = rows[2 * place], rows[2 * place + 1]
        assert (failed.outcome, failed.error_class) == ("failed", "unknown"), f"{name}: {failed.message}"
        assert failed.error_type.endswith(kind), f"{name}: {failed.error_type}"
        assert message in failed.message, f"{name}: {failed.message}"
        assert len(failed.message.encode()) <= 8192
        assert failed.traceback.strip(), name
        assert after.outcome == "succeeded", f"{name}: {after.message}"
    extra = [] if atomic or (connection.vendor == "postgresql" and atomic) else [2]
    assert [n for n in table() if n == 1] == [1] * len(KINDS)
    assert set(table()) <= {1, *extra}


GROUPS: dict[str, tuple[Callable[[], BaseException], str, str]] = {
    "one-snooze": (lambda: ExceptionGroup("g", [Snooze(timedelta(minutes=5))]), "snoozed", ""),
    "snoozes": (
        lambda: ExceptionGroup("g", [Snooze(timedelta(1)), ExceptionGroup("h", [Snooze(timedelta(minutes=5))])]),
        "snoozed",
        "",
    ),
    "uncertain": (lambda: ExceptionGroup("g", [EffectUncertain("not known yet")]), "snoozed", ""),
    "snooze-and-transient": (
        lambda: ExceptionGroup("g", [Snooze(timedelta(minutes=5)), TransientError("busy")]),
        "failed",
        "transient",
    ),
    "snooze-and-unknown": (lambda: ExceptionGroup("g", [Snooze(timedelta(1)), ValueError("no")]), "failed", "unknown"),
    "uncertain-and-transient": (
        lambda: ExceptionGroup("g", [EffectUncertain("not known yet"), TransientError("busy")]),
        "failed",
        "transient",
    ),
    "no-timedelta": (lambda: Snooze(5), "failed", "permanent"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", GROUPS)
def test_groups_are_classed_by_their_members(declare: Declare, name: str) -> None:
    """Members that all ask for the same are heard as one; beside others a wish to be run later has no say."""
    make, outcome, error_class = GROUPS[name]
    declare(lambda: throw(make())).enqueue()

    attempt = run_one()

    assert (attempt.outcome, attempt.error_class or "") == (outcome, error_class)


def test_wish_is_recorded_with_its_text_redacted(declare: Declare) -> None:
    """What a snooze says is kept as errors are: secrets masked, and cut."""
    declare(lambda: throw(Snooze(timedelta(minutes=5), "password=hunter2 " + "x" * 10_000))).enqueue()

    attempt = run_one()

    assert attempt.outcome == "snoozed"
    assert "hunter2" not in attempt.message
    assert len(attempt.message) <= 8192


def test_policy_whose_types_cannot_be_asked_is_survived(declare: Declare) -> None:
    """A declared type that raises when it is asked makes the error unknown; its own class and message are kept."""
    declare(lambda: throw(ValueError("plain")), retry=RetryPolicy(permanent=(odd.TrappedError,))).enqueue()

    attempt = run_one()

    assert (attempt.outcome, attempt.error_class, attempt.error_type) == ("failed", "unknown", "ValueError")
    assert attempt.message == "plain"


RESULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "object": (object, "of type object"),
    "set": (lambda: {1}, "sorted"),
    "nan": (lambda: float("nan"), "NaN"),
    "decimal-nan": (lambda: Decimal("NaN"), "NaN"),
    "generator": (lambda: (n for n in range(3)), "list(...)"),
    "huge": (lambda: "x" * 50_000_000, "more than 65536"),
    "lazy": (lambda: gettext_lazy("January"), "lazy text"),
    "model": (lambda: Group(name="g"), "model instance"),
    "surrogate": (lambda: "\ud800", "surrogate"),
}


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("how", ["atomic", "plain", "completion"])
def test_result_that_cannot_be_stored_has_a_defined_end_r37(
    declare: Declare, table: Table, name: str, how: str
) -> None:
    """Dead letter 'payload' that names the handler's result and the mend; rows of a transaction go with it."""
    make, told = RESULTS[name]

    def returning() -> Any:
        write(1)
        return make()

    def completing(context: JobContext) -> None:
        with context.complete() as done:
            write(1)
            done.result = make()

    if how == "completion":
        declare(completing, takes_context=True).enqueue()
    else:
        declare(returning, atomic=how == "atomic").enqueue()

    attempt = run_one()

    job = the_job()
    assert (job.state, job.dead_reason) == ("dead_lettered", "payload")
    assert attempt.error_type.endswith("PayloadError")
    assert told in attempt.message
    assert "result" in attempt.message
    assert table() == ([1] if how == "plain" else [])


@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "plain"])
def test_result_that_raises_when_it_is_read_is_told_r37(declare: Declare, table: Table, atomic: bool) -> None:
    """The error is the attempt's own, with its class and message."""
    declare(lambda: odd.SlyList([1]), atomic=atomic).enqueue()

    attempt = run_one()

    assert (attempt.outcome, attempt.error_type, attempt.message) == ("failed", "SystemExit", "not for you")


def test_decimal_result_is_stored_r37(declare: Declare) -> None:
    """A Decimal keeps its digits."""
    declare(lambda: Decimal("1.10")).enqueue()

    assert run_one().outcome == "succeeded"
    assert the_job().payload.result == '"1.10"'


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, ValueError])
def test_receiver_that_raises_harms_no_job(declare: Declare, table: Table, error: type[BaseException]) -> None:
    """Whatever a receiver of telemetry raises in a handler's thread, the job succeeds."""

    def broken(event: str, fields: dict[str, object]) -> None:
        raise error(event)

    declare(write).enqueue(n=1)
    attempt = take()
    end = telemetry.subscribe(broken)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(telemetry, "_failed", set())
            run(attempt)
    finally:
        end()

    assert Attempt.objects.get().outcome == "succeeded"
    assert table() == [1]
