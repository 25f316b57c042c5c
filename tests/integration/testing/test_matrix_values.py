"""The crash matrix compares values, requests and events: it finds what is written twice, and calls nothing else bad."""

from __future__ import annotations

import secrets
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db.models import F
from django.db.models.functions import Concat

from django_jobs import Confirmed, JobContext, clock, effect, event_type, publish
from django_jobs.define import events
from django_jobs.effects import adapter
from django_jobs.testing import CrashMatrix, FakeDownstream, JobsClock, JobsKit, RepeatableWriteWarning
from django_jobs.testing.repairs import CHANGED, FAILS, NEVER_ASKED, OTHER_VALUES, PUBLISHED, check_dry, compare
from django_jobs.testing.seen import Seen
from testproject.shop.models import Order
from tests.integration.testing.conftest import Declare

KILL = {"kinds": ("kill",), "points": ("finish.before",)}
DONE = Seen(counted=None, rows={}, jobs=(("kit.one", "succeeded", ""),), keys=(), errors=(), table="")


@pytest.fixture
def downstream(jobs_clock: JobsClock) -> FakeDownstream:
    """The provider."""
    return FakeDownstream(now=jobs_clock.now)


@pytest.fixture
def matrix(jobs: JobsKit, downstream: FakeDownstream) -> CrashMatrix:
    """The matrix, with an order of 100 before each run."""
    Order.objects.create(number="A1", customer="ada", amount=Decimal(100), card="x")
    return CrashMatrix(jobs, downstream)


@pytest.fixture
def pay(downstream: FakeDownstream) -> Iterator[Any]:
    """An operation that sends what it is given."""

    @effect("kit.pay", dedupe="key", key_lifetime=timedelta(hours=24), requires_key=True)
    def pay(call: Any, **fields: Any) -> Any:
        return Confirmed(downstream.send("pay", key=call.key, body=fields).body["id"])

    yield pay
    adapter._declared.pop("kit.pay", None)


@pytest.fixture
def shipped() -> Iterator[str]:
    """A type of event that nobody waits for."""
    event_type("kit.values.shipped", version=1, fields={"order_id": int})
    yield "kit.values.shipped"
    events._types.pop(("kit.values.shipped", 1), None)


def debit() -> None:
    """Take ten of the order, each time that it is called."""
    Order.objects.filter(number="A1").update(amount=F("amount") - 10)


def test_a_repeated_update_before_completion_is_found(matrix: CrashMatrix, declare: Declare) -> None:
    """An update that commits before the success takes the amount twice; the report names point, column and repair."""

    def take(context: JobContext) -> None:
        debit()
        with context.complete():
            pass

    with pytest.raises(AssertionError) as told:
        matrix.check(handler=declare(take, takes_context=True), **KILL)

    text = str(told.value)
    assert "kill at finish.before\n  found:    shop_order.amount: 80" in text
    assert "(written outside of complete() and step(): " in text
    assert "test_matrix_values.py:" in text
    assert "expected: shop_order.amount: 90" in text
    assert f"REPAIR:   {OTHER_VALUES}" in text
    assert Order.objects.get().amount == 100


def test_a_repeated_update_of_a_handler_that_is_not_atomic_is_found(matrix: CrashMatrix, declare: Declare) -> None:
    """The rows of such a handler commit one by one, so a crash after its last line repeats them all."""

    def take() -> None:
        debit()

    report = matrix.run(handler=declare(take, atomic=False), **KILL)

    assert [failure.finding.repair for failure in report.failures] == [OTHER_VALUES]


def test_a_count_of_tries_is_allowed_by_name(matrix: CrashMatrix, declare: Declare) -> None:
    """A column that grows with each attempt on purpose differs, unless the test says that it may."""

    def attempted(context: JobContext) -> None:
        Order.objects.update(card=Concat("card", "card"))
        with context.complete():
            pass

    handler = declare(attempted, takes_context=True)

    assert matrix.run(handler=handler, **KILL).failures
    matrix.check(handler=handler, may_vary=("shop_order.card",), **KILL)


def test_what_differs_by_itself_is_no_finding(matrix: CrashMatrix, declare: Declare) -> None:
    """Random values, ids of jobs, numbers of attempts, times and dates are others in each run of a correct handler."""

    def plain(context: JobContext) -> None:
        with context.complete():
            now = clock.now()
            Order.objects.update(number=uuid.uuid4().hex, provider_ref=context.job_id, paid_at=now, status="paid")
            Order.objects.update(card=f"try {context.attempt}", decline_reason=now.date().isoformat())

    handler = declare(plain, takes_context=True, key="one")
    report = matrix.check(handler=handler, points=("handler.before", "finish.before", "finish.after_commit"))

    assert len(report) == 12


def test_a_date_may_change_in_the_middle_of_a_matrix(
    matrix: CrashMatrix, declare: Declare, jobs_clock: JobsClock
) -> None:
    """A run after midnight writes another date than the one before: that is no fault of the handler's."""
    tomorrow = (jobs_clock.now() + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    jobs_clock.move_to(tomorrow - timedelta(seconds=10))

    def dated(context: JobContext) -> None:
        with context.complete():
            Order.objects.update(card=clock.now().date().isoformat())

    matrix.check(handler=declare(dated, takes_context=True), **KILL)


@pytest.mark.parametrize(
    "value",
    [
        lambda context: Group.objects.create(name="invoice").pk,
        lambda context: secrets.token_hex(8),
        lambda context: str(context.job_id),
        lambda context: clock.now().isoformat(),
        lambda context: context.attempt,
    ],
    ids=["primary_key", "random", "job_id", "time", "attempt"],
)
def test_a_request_that_is_fixed_by_a_step_passes(
    matrix: CrashMatrix, pay: Any, declare: Declare, value: Callable[[JobContext], Any]
) -> None:
    """What a step keeps is the same in every attempt of one job, whatever it is in another run."""

    def invoiced(context: JobContext) -> None:
        number = context.step("invoice", lambda: value(context))
        context.effect("pay", pay, key="order:7", invoice=number)
        with context.complete():
            pass

    handler = declare(invoiced, takes_context=True, key="order:7")
    report = matrix.check(
        handler=handler, expect=1, points=("handler.before", "effect.after_intent", "effect.after_call")
    )

    assert len(report) == 12


def test_a_request_that_changes_under_its_key_is_found(
    matrix: CrashMatrix, downstream: FakeDownstream, declare: Declare
) -> None:
    """The provider of a request that is made by hand sees another body under the same key in one run."""

    def by_hand(context: JobContext) -> None:
        downstream.send("pay", key="order:7", body={"amount": 10 * context.attempt})
        with context.complete():
            pass

    (failure,) = matrix.run(handler=declare(by_hand, takes_context=True), **KILL).failures

    assert "pay was asked for under key order:7 with" in failure.finding.found
    assert failure.finding.repair == CHANGED


def test_a_request_made_of_a_row_that_changed_is_found(matrix: CrashMatrix, pay: Any, declare: Declare) -> None:
    """An amount that is read from what the lost attempt has written already is another one than without a fault."""

    def take(context: JobContext) -> None:
        debit()
        context.effect("pay", pay, key="order:7", amount=str(Order.objects.get().amount.quantize(Decimal(1))))
        with context.complete():
            pass

    report = matrix.run(
        handler=declare(take, takes_context=True), rows=bool, kinds=("kill",), points=("effect.before_intent",)
    )

    (failure,) = report.failures
    assert (failure.finding.found, failure.finding.repair) == ('request pay.amount: "80"', CHANGED)


def test_a_doubled_event_is_found(matrix: CrashMatrix, shipped: str, declare: Declare) -> None:
    """An event that is published apart from the success is stored again by the next attempt."""

    def ship(context: JobContext) -> None:
        publish(shipped, {"order_id": 7}, version=1, detached=True)
        with context.complete():
            pass

    report = matrix.run(handler=declare(ship, takes_context=True), rows=bool, **KILL)

    (failure,) = report.failures
    assert failure.finding.found == "events kit.values.shipped: 2"
    assert failure.finding.expected == "events kit.values.shipped: 1"
    assert failure.finding.repair == PUBLISHED


def test_a_lost_event_is_told() -> None:
    """An event that is missing after a fault is a finding, with what to do about it."""
    dry = replace(DONE, events=Counter({"kit.values.shipped": 1}))

    (finding,) = compare(DONE, dry, expect=None, may_review=False)

    assert (finding.found, finding.repair) == ("events kit.values.shipped: 0", NEVER_ASKED)


def test_a_handler_that_never_works_fails_at_once(matrix: CrashMatrix, declare: Declare) -> None:
    """A job that is dead-lettered without a fault survives nothing: its error is shown, and no fault is tried."""

    def never() -> None:
        Order.objects.get(number="4711")

    report = matrix.run(handler=declare(never))

    (failure,) = report.failures
    assert "kit.never dead_lettered" in failure.finding.found
    assert "DoesNotExist: Order matching query does not exist." in failure.finding.found
    assert failure.finding.repair == FAILS
    assert report.cells == ()


def test_a_handler_may_fail_on_purpose(matrix: CrashMatrix, declare: Declare) -> None:
    """With may_fail=True the dead letter is the end that must be the same after every fault."""

    def never() -> None:
        Order.objects.get(number="4711")

    report = matrix.check(handler=declare(never), may_fail=True, kinds=("kill",), points=("handler.before",))

    assert len(report) == 1


def test_a_job_that_was_cancelled_has_not_worked() -> None:
    """A job of another type that succeeded does not make up for the tested one, which ended without success."""
    cancelled = replace(DONE, jobs=(*DONE.jobs, ("kit.two", "cancelled", "")))

    assert check_dry(cancelled, kind="kit.one", expect=None, may_fail=False) == []
    (finding,) = check_dry(cancelled, kind="kit.two", expect=None, may_fail=False)
    assert finding.repair == FAILS
    assert check_dry(cancelled, kind="kit.two", expect=None, may_fail=True) == []


def test_a_harmless_write_outside_of_completion_is_still_warned_about(matrix: CrashMatrix, declare: Declare) -> None:
    """A write that may be repeated survives everything, and the warning with its line is given once."""

    def marked(context: JobContext) -> None:
        Order.objects.update(status="paid")
        with context.complete():
            pass

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        matrix.check(handler=declare(marked, takes_context=True), **KILL)

    (one,) = [warning for warning in told if issubclass(warning.category, RepeatableWriteWarning)]
    assert one.filename == __file__
