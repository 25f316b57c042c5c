"""The crash matrix finds planted bugs and names their repair, and lets correct handlers pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core import mail

from django_jobs import Confirmed, JobContext, Rejected, effect
from django_jobs.domain.effects import Reconciliation, Verdict
from django_jobs.effects import adapter
from django_jobs.exceptions import KitError
from django_jobs.models import Job
from django_jobs.testing import CrashMatrix, FakeDownstream, JobsClock, JobsKit
from django_jobs.testing.repairs import NEVER_ASKED, compare
from django_jobs.testing.seen import Seen
from tests.integration.testing.conftest import Declare


@pytest.fixture
def downstream(jobs_clock: JobsClock) -> FakeDownstream:
    """The provider."""
    return FakeDownstream(now=jobs_clock.now)


@pytest.fixture
def matrix(jobs: JobsKit, downstream: FakeDownstream) -> CrashMatrix:
    """The matrix that looks at the provider's ledger."""
    return CrashMatrix(jobs, downstream)


@pytest.fixture
def charge(downstream: FakeDownstream) -> Iterator[Any]:
    """An operation at a provider with keys."""

    @effect("kit.charge", dedupe="key", key_lifetime=timedelta(hours=24), requires_key=True)
    def charge(call: Any, *, order_id: int, amount: int = 5) -> Any:
        answer = downstream.send("charge", key=call.key, body={"order_id": order_id, "amount": amount})
        return Confirmed(answer.body["id"]) if answer.ok else Rejected("declined")

    @charge.reconcile
    def find(call: Any, *, order_id: int, amount: int = 5) -> Any:
        answer = downstream.find("charge", key=call.key)
        return Reconciliation(Verdict.SUCCEEDED, provider_ref=answer.body["id"]) if answer.ok else Verdict.NOT_FOUND

    yield charge
    adapter._declared.pop("kit.charge", None)


def failure(matrix: CrashMatrix, handler: Any, *points: str, **options: Any) -> str:
    """Return what the matrix says of a handler with a bug."""
    with pytest.raises(AssertionError) as told:
        matrix.check(handler=handler, payload={"order_id": 7}, points=points or "reached", **options)
    return str(told.value)


def test_an_effect_outside_of_the_ledger_is_found(
    matrix: CrashMatrix, downstream: FakeDownstream, declare: Declare
) -> None:
    """A request made by hand in the handler is made twice; the report names the point, the kind and the ledger."""

    def by_hand(context: JobContext, order_id: int) -> None:
        downstream.send("charge", body={"order_id": order_id})
        with context.complete():
            pass

    text = failure(matrix, declare(by_hand, takes_context=True), "finish.before", expect=1, kinds=("kill",))

    assert "kit.by_hand does not survive 1 of 1 faults." in text
    assert "kill at finish.before\n  found:    2 effects\n  expected: 1\n" in text
    assert "REPAIR:   The request was made outside of the ledger." in text
    assert "attempt    1: lost\n    attempt    2: succeeded" in text
    assert (
        "again:    crash_matrix.check(handler='kit.by_hand', payload={'order_id': 7}, kinds=('kill',), "
        "points=('finish.before',), …)"
    ) in text


def test_a_double_write_is_found(matrix: CrashMatrix, declare: Declare) -> None:
    """Rows that are written outside of complete() are there twice; the report has the handler's line."""

    def early(context: JobContext, order_id: int) -> None:
        Group.objects.create(name=f"early {Group.objects.count()}")
        with context.complete():
            Group.objects.create(name="late")

    text = failure(matrix, declare(early, takes_context=True), "finish.before", kinds=("kill",))

    assert "found:    rows auth_group: 3 (written outside of complete() and step(): " in text
    assert "test_matrix.py:" in text
    assert "expected: auth_group: 2" in text
    assert "REPAIR:   Rows are written in a transaction of their own" in text


def test_a_job_that_is_never_enqueued_is_told() -> None:
    """Where a job is missing that comes of this one, the rows that it would have written are no finding of their own."""
    parent, child = ("kit.parent", "succeeded", ""), ("kit.child", "succeeded", "")
    dry = Seen(counted=None, rows={"auth_group": 1}, jobs=(child, parent), keys=(), errors=(), table="")

    (finding,) = compare(replace(dry, rows={"auth_group": 0}, jobs=(parent,)), dry, expect=None, may_review=False)

    assert (finding.found, finding.repair) == ("kit.parent succeeded", NEVER_ASKED)


def test_a_key_of_the_attempt_is_found(matrix: CrashMatrix, charge: Any, declare: Declare) -> None:
    """A key that has the attempt's number in it makes every attempt a new effect."""

    def keyed(context: JobContext, order_id: int) -> None:
        context.effect("charge", charge, key=f"order:{order_id}:{context.attempt}", order_id=order_id)
        with context.complete():
            pass

    text = failure(matrix, declare(keyed, takes_context=True), "effect.after_call", kinds=("kill",))

    assert "kill at effect.after_call\n  found:    4 effects\n  expected: 1\n  REPAIR:   The key of the effect" in text
    assert "REPAIR:   The key of the effect is another one in each attempt." in text
    assert "effect     charge (order:7:1)" in text
    assert text.count("REPAIR:") == 1


def test_a_changed_amount_is_found(matrix: CrashMatrix, charge: Any, declare: Declare) -> None:
    """An amount that is another one in the second attempt is refused by the ledger, and the report says what to fix."""

    def dearer(context: JobContext, order_id: int) -> None:
        context.effect("charge", charge, key=f"order:{order_id}", order_id=order_id, amount=10 * context.attempt)
        with context.complete():
            pass

    text = failure(matrix, declare(dearer, takes_context=True), "effect.after_intent", kinds=("kill",))

    assert "kill at effect.after_intent\n  found:    EffectChangedError: " in text
    assert "REPAIR:   The request is another one when the job runs again." in text


def test_a_handler_that_is_wrong_anyway_is_told_first(matrix: CrashMatrix, declare: Declare) -> None:
    """What is wrong without a fault is no matter of crashes, and no fault is tried."""

    def idle(order_id: int) -> None:
        pass

    text = failure(matrix, declare(idle), expect=1)

    assert "kit.idle is not right without any fault." in text
    assert "found:    0 effects" in text


@pytest.mark.long
def test_a_correct_plain_handler_passes(matrix: CrashMatrix, declare: Declare) -> None:
    """A function in one transaction with its success survives everything; nothing is left of the runs."""

    def plain(order_id: int) -> None:
        Group.objects.create(name="row")

    report = matrix.check(handler=declare(plain, key="order:{order_id}"), payload={"order_id": 7})

    assert {"claim.after_commit", "handler.before", "handler.after", "finish.after_commit"} <= set(report.points)
    assert report.kinds == ("kill", "lost_commit", "zombie", "redeliver")
    assert "FAILED" not in report.table
    assert not Group.objects.exists()
    assert not Job.objects.exists()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_correct_effect_passes(
    matrix: CrashMatrix, charge: Any, declare: Declare, downstream: FakeDownstream
) -> None:
    """A recorded effect with a key and a completion survives everything, and the provider is left as it was."""

    def pay(context: JobContext, order_id: int) -> None:
        context.effect("charge", charge, key=f"order:{order_id}", order_id=order_id)
        with context.complete():
            Group.objects.create(name="paid")

    handler = declare(pay, takes_context=True, key="order:{order_id}")
    report = matrix.check(handler=handler, payload={"order_id": 7}, expect=1)

    assert {"effect.after_intent", "effect.after_call", "effect.after_confirm"} <= set(report.points)
    assert not downstream.ledger


def test_mails_are_counted_and_put_back(matrix: CrashMatrix, declare: Declare) -> None:
    """A mail that is sent by hand is found twice, and the outbox of the test is as before."""
    mail.send_mail("of the test", "", None, ["ada@example.com"])

    def greet(order_id: int) -> None:
        mail.send_mail("hello", "", None, ["ada@example.com"])

    text = failure(matrix, declare(greet), "handler.after", kinds=("kill",), effects=lambda: len(mail.outbox), expect=1)

    assert "found:    2 effects" in text
    assert [message.subject for message in mail.outbox] == ["of the test"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": ("explosion",)}, "kinds= takes a sequence of kill"),
        ({"kinds": "kill"}, "kinds= takes a sequence of kill"),
        ({"points": "handler.after"}, "points= takes 'reached' or a sequence"),
        ({"points": ("effect.after_call",)}, "the job does not come to 'effect.after_call'"),
        ({"points": ("handler.after:2",)}, "the job does not come to 'handler.after:2'"),
    ],
)
def test_arguments_are_checked(matrix: CrashMatrix, declare: Declare, options: dict[str, Any], message: str) -> None:
    """What cannot be meant is told."""

    def plain() -> None:
        pass

    with pytest.raises(KitError, match=message):
        matrix.check(handler=declare(plain), **options)


def test_a_matrix_that_hit_nothing_fails(matrix: CrashMatrix, declare: Declare) -> None:
    """Nobody can ask twice for a job without a key; a matrix of that alone proves nothing."""

    def plain() -> None:
        pass

    with pytest.raises(AssertionError, match="Not one fault hit"):
        matrix.check(handler=declare(plain), kinds=("redeliver",), points=("handler.after",))
