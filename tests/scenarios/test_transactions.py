"""F29: the caller's transaction, however it was opened, decides whether a job exists; a claim never shares one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from django.db import connection, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path

from django_jobs import clock, publish
from django_jobs.enqueue.outcome import EnqueueResult
from django_jobs.exceptions import EnqueueContendedError
from django_jobs.models import Delivery, IdempotencyKey, Job, OutboxEvent
from django_jobs.signals import owner_alert
from django_jobs.store import statements
from tests.databases import Server
from tests.declared import charge, plain
from tests.integration.outbox.conftest import PAID, crm, paid
from tests.publishers import Desk

__all__ = ["crm", "paid"]

pytestmark = pytest.mark.django_db(transaction=True)


def seen() -> int:
    """Return how many jobs another connection sees."""
    found: list[int] = []

    def look() -> None:
        found.append(Job.objects.count())
        connections.close_all()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(timeout=30)
    return found[0]


def enqueues(request: HttpRequest) -> HttpResponse:
    """Enqueue, and end as the query says."""
    charge.enqueue(order_id=1)
    if "raise" in request.GET:
        raise ValueError("the view failed after its enqueue")
    if "rollback" in request.GET:
        transaction.set_rollback(True)
    if "savepoint" in request.GET:
        with transaction.atomic():
            plain.enqueue()
            transaction.set_rollback(True)
    return HttpResponse(str(seen()))


urlpatterns = [path("enqueue", enqueues)]


@pytest.fixture
def atomic_requests(server: Server) -> Iterator[Client]:
    """A site each of whose requests is one transaction."""
    with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=[]):
        connection.settings_dict["ATOMIC_REQUESTS"] = True
        try:
            yield Client(raise_request_exception=False)
        finally:
            connection.settings_dict["ATOMIC_REQUESTS"] = False


@pytest.mark.parametrize(
    ("query", "status", "jobs"), [("", 200, 1), ("?savepoint", 200, 1), ("?raise", 500, 0), ("?rollback", 200, 0)]
)
def test_f29_request_that_is_one_transaction_decides(
    atomic_requests: Client, vendor: str, query: str, status: int, jobs: int
) -> None:
    """ATOMIC_REQUESTS: nobody sees the job before the response, and after it only if the request committed."""
    response = atomic_requests.get(f"/enqueue{query}")

    assert response.status_code == status
    if status == 200:
        assert response.content == b"0", "another connection looked while the request was under way"
    assert (seen(), IdempotencyKey.objects.count()) == (jobs, jobs)
    assert charge.enqueue(order_id=1).outcome == ("duplicate" if jobs else "created")


def many(order_id: int) -> EnqueueResult:
    """Enqueue one as many."""
    return charge.enqueue_many([{"order_id": order_id}])[0]


@pytest.mark.parametrize("act", [charge.enqueue, many], ids=["one", "many"])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_f29_switched_off_autocommit_decides(server: Server, act: Callable[..., EnqueueResult], end: str) -> None:
    """Autocommit off: the job is there after commit() and is not after rollback(), and a later enqueue is not touched."""
    transaction.set_autocommit(False)
    try:
        assert act(order_id=1).outcome == "created"
        assert act(order_id=1).outcome == "duplicate"
        assert seen() == 0, "nothing of the caller's transaction was committed by the enqueue"
        getattr(transaction, end)()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)

    assert seen() == (1 if end == "commit" else 0)
    assert charge.enqueue(order_id=2).created


@pytest.mark.parametrize("outer", [True, False], ids=["outer-commits", "outer-rolls-back"])
@pytest.mark.parametrize("inner", [True, False], ids=["inner-kept", "inner-undone"])
def test_f29_nested_blocks_decide_from_outside_in(server: Server, outer: bool, inner: bool) -> None:
    """A job of a savepoint is there only if the savepoint is kept and the outermost block commits."""
    with transaction.atomic():
        plain.enqueue()
        with transaction.atomic():
            charge.enqueue(order_id=1)
            plain.enqueue_many([{"number": 1}, {"number": 2}])
            transaction.set_rollback(not inner)
        assert Job.objects.count() == (4 if inner else 1)
        assert seen() == 0
        transaction.set_rollback(not outer)

    assert seen() == (0 if not outer else 4 if inner else 1)
    assert IdempotencyKey.objects.count() == int(outer and inner)


def test_f29_savepoint_that_is_rolled_back_by_hand_takes_its_jobs_along(server: Server) -> None:
    """Rolled back to a savepoint after the enqueue: the outer commit brings back nothing, and the key is free."""
    with transaction.atomic():
        kept = plain.enqueue()
        place = transaction.savepoint()
        charge.enqueue(order_id=1)
        transaction.savepoint_rollback(place)
        again = charge.enqueue(order_id=1)

    assert again.outcome == "created"
    assert set(Job.objects.values_list("pk", flat=True)) == {kept.id, again.id}


@pytest.fixture
def manual(server: Server) -> Iterator[None]:
    """Switch autocommit off for one test."""
    transaction.set_autocommit(False)
    try:
        yield
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


@pytest.mark.postgres
def test_f29_statement_in_a_transaction_of_the_caller_is_not_run_again(
    manual: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lost against another transaction is the caller's to repeat: a second try would only meet a broken one."""

    def again(statement: Callable[[], object]) -> object:
        raise AssertionError("run again inside the caller's transaction")

    monkeypatch.setattr(statements, "run_again", again)

    assert charge.enqueue(order_id=1).created


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_f29_event_without_autocommit_is_the_caller_s_too(crm: Desk, manual: None, end: str) -> None:
    """publish() with autocommit off: the event and its deliveries are there after commit(), and not after rollback()."""
    publish(PAID, {"order_id": 1}, ordering_key="order:1")
    publish(PAID, {"order_id": 1}, ordering_key="order:1")
    getattr(transaction, end)()

    many = 2 if end == "commit" else 0
    assert (OutboxEvent.objects.count(), Delivery.objects.count()) == (many, many)


@pytest.mark.parametrize("act", [charge.enqueue, many], ids=["one", "many"])
def test_f29_duplicate_of_a_dead_letter_is_told_without_autocommit(
    manual: None, act: Callable[..., EnqueueResult]
) -> None:
    """The owner hears of it at once, because nobody says when the caller commits; the producer gets its answer."""
    charge.enqueue(order_id=1)
    Job.objects.update(state="dead_lettered", dead_at=clock.now(), dead_reason="permanent")
    heard: list[str] = []

    def hear(reason: str, **_: object) -> None:
        heard.append(reason)

    owner_alert.connect(hear)
    try:
        assert act(order_id=1).outcome == "duplicate"
    finally:
        owner_alert.disconnect(hear)

    assert heard == ["duplicate_of_dead"]


def test_f29_contended_key_is_told_as_that(manual: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With autocommit off the error of a key that changes hands is no other than elsewhere."""
    monkeypatch.setattr("django_jobs.enqueue.bulk.TRIES", 0)

    with pytest.raises(EnqueueContendedError):
        many(order_id=1)
