"""What publish() stores, where it may be called, and what it refuses before any SQL."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_jobs import JobContext, event_type, publish
from django_jobs.define.events import forget_event_type
from django_jobs.domain.identity import fingerprint
from django_jobs.exceptions import (
    DefinitionError,
    EventError,
    OutsideCompletionError,
    OutsideTransactionError,
)
from django_jobs.models import Delivery, OrderingKey, OutboxEvent, Subscription
from django_jobs.outbox.destinations import routes
from django_jobs.store.subscriptions import Route, announce, sync
from tests.integration.outbox.conftest import CRM, PAID, Subscribe, delivered, published, undone
from tests.integration.worker.conftest import Declare, run_one
from tests.publishers import Desk
from tests.scenes import Told

pytestmark = pytest.mark.django_db(transaction=True)


def test_event_and_its_deliveries_commit_or_vanish_together(crm: Desk, subscriber: Subscribe) -> None:
    """One delivery per destination, in the transaction of the event."""
    subscriber(lambda event: None)

    with undone():
        publish(PAID, {"order_id": 1})
    assert (OutboxEvent.objects.count(), Delivery.objects.count()) == (0, 0)

    event_id = published(2, subject="order:2", ordering_key="order:2")

    stored = OutboxEvent.objects.get()
    assert (stored.pk, stored.type, stored.version, stored.subject) == (event_id, PAID, 1, "order:2")
    assert (stored.data, stored.data_digest) == ('{"order_id":2}', fingerprint('{"order_id":2}'))
    assert (stored.source, stored.routed_count, stored.key_seq) == ("urn:django:testproject", 2, 1)
    deliveries = Delivery.objects.filter(event_id=event_id).values_list(
        "destination", "state", "ordering_key", "key_seq"
    )
    assert sorted(deliveries) == [(CRM, "pending", "order:2", 1), ("local:tests.receipt", "pending", "order:2", 1)]
    assert {row.pk.version for row in Delivery.objects.all()} == {7}


def test_event_without_a_route_is_legal_and_counted(paid: str) -> None:
    """Nobody has to listen."""
    with Told() as told:
        published()

    assert OutboxEvent.objects.get().routed_count == 0
    assert told.named("event.publish")[0]["routed"] == 0


def test_source_is_a_setting(paid: str) -> None:
    """A site that says what it is called is called so."""
    with override_settings(DJANGO_JOBS={**settings.DJANGO_JOBS, "SOURCE": "https://shop.example.com"}):
        published()

    assert OutboxEvent.objects.get().source == "https://shop.example.com"


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("undeclared type", {"type": "tests.nothing"}, "is not declared in version 1"),
    ("undeclared version", {"version": 2}, "is not declared in version 2. Declared versions: 1."),
    ("undeclared field", {"data": {"order_id": 1, "colour": "red"}}, "has no field 'colour'"),
    ("missing field", {"data": {}}, "needs the field 'order_id'"),
    ("wrong type", {"data": {"order_id": "1"}}, "'order_id' of the event tests.order.paid v1 must be int, not str"),
    ("a bool is no int", {"data": {"order_id": True}}, "must be int, not bool"),
    ("no dict", {"data": [1]}, "must be a dict of its fields, not list"),
    ("nothing", {"data": None}, "must be a dict of its fields, not NoneType"),
    ("NUL", {"data": {"order_id": 1, "note": "a\x00b"}}, "cannot be stored"),
    ("lone surrogate", {"data": {"order_id": 1, "note": "\ud800"}}, "cannot be stored"),
    ("too large", {"data": {"order_id": 1, "note": "x" * 65536}}, "give dataref= for more"),
    ("key with NUL", {"ordering_key": "a\x00"}, "ordering_key has signs outside printable ASCII"),
    ("long key", {"ordering_key": "a" * 256}, "ordering_key has 256 signs"),
    ("long subject", {"subject": "a" * 201}, "subject has 201 signs"),
    ("number as key", {"ordering_key": 7}, "ordering_key is of type int"),
    ("unknown database", {"using": "nowhere"}, "There is no database 'nowhere'"),
]


@pytest.mark.parametrize(("change", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_does_not_fit_is_refused_before_sql(paid: str, change: dict[str, Any], message: str) -> None:
    """The message names the event and the mend; the caller's transaction goes on."""
    values: dict[str, Any] = {"type": PAID, "data": {"order_id": 1}, **change}
    with transaction.atomic(), CaptureQueriesContext(connection) as queries:
        with pytest.raises(EventError, match="(?s)" + message.replace("(", r"\(").replace(".", r"\.")):
            publish(values.pop("type"), values.pop("data"), **values)
        assert [query["sql"] for query in queries] == []


def test_large_data_goes_by_reference(paid: str) -> None:
    """With a dataref the data stays outside, and its digest is kept."""
    large = {"order_id": 1, "note": "x" * 70_000}
    with transaction.atomic():
        publish(PAID, large, dataref="https://files.example.com/1")
        publish(PAID, None, dataref="https://files.example.com/2")

    first, second = OutboxEvent.objects.order_by("id")
    assert (first.data, len(first.data_digest), second.data, second.data_digest) == ("", 67, "", "")


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"name": "a b", "fields": {}}, "has a colon or a space"),
        ({"name": "a:1", "fields": {}}, "has a colon or a space"),
        ({"name": "a", "version": 0, "fields": {}}, "version must be a whole number"),
        ({"name": "a", "fields": {"x": object}}, "cannot be of type"),
        ({"name": "a", "fields": {"not a name": int}}, "is no name for a field"),
        ({"name": "a", "fields": ["x"]}, "fields must be a dict"),
        ({"name": PAID, "fields": {"order_id": str}}, "declared twice with different fields"),
    ],
)
def test_declaration_that_cannot_work_is_refused(paid: str, declared: dict[str, Any], message: str) -> None:
    """The message says what is wrong with it."""
    with pytest.raises(DefinitionError, match=message):
        event_type(**declared)


def test_optional_fields_and_containers(paid: str) -> None:
    """A field that may be None may be missing; lists and dicts are taken as they are."""
    event_type("tests.rich", fields={"lines": list[int], "more": dict[str, Any], "total": float, "at": str | None})
    try:
        with transaction.atomic():
            publish("tests.rich", {"lines": [1], "more": {"a": 1}, "total": 1})
            with pytest.raises(EventError, match=r"'lines' .* must be list\[int\], not str"):
                publish("tests.rich", {"lines": "1", "more": {}, "total": 1.5})
    finally:
        forget_event_type("tests.rich")


def test_outside_of_a_transaction_it_is_refused(paid: str) -> None:
    """It would not commit together with what happened; detached says that this is meant."""
    with pytest.raises(OutsideTransactionError, match=r"inside transaction\.atomic\(\)"):
        publish(PAID, {"order_id": 1})
    assert OutboxEvent.objects.count() == 0

    publish(PAID, {"order_id": 1}, detached=True)

    assert OutboxEvent.objects.count() == 1


@pytest.mark.django_db
def test_block_of_a_test_case_is_no_transaction(paid: str) -> None:
    """What Django's TestCase opens around a test does not count, as for durable blocks."""
    with pytest.raises(OutsideTransactionError):
        publish(PAID, {"order_id": 1})
    with transaction.atomic():
        publish(PAID, {"order_id": 1})


def run(declare: Declare, work: Callable[..., Any], **options: Any) -> Any:
    """Run a handler once; returns its attempt."""
    declare(work, **options).enqueue()
    return run_one()


def test_job_publishes_with_its_success(declare: Declare, crm: Desk) -> None:
    """The event carries the job and the attempt, and continues its correlation."""

    def work(context: JobContext) -> None:
        with context.complete():
            publish(PAID, {"order_id": 1})

    attempt = run(declare, work, takes_context=True)

    stored = OutboxEvent.objects.get()
    assert (stored.job_id, stored.attempt_id, stored.fence) == (attempt.job_id, attempt.pk, 1)
    assert (stored.correlation_id, stored.causation_id) == (str(attempt.job_id), str(attempt.job_id))


def test_failed_completion_publishes_nothing(declare: Declare, crm: Desk) -> None:
    """What the block published goes with it."""

    def work(context: JobContext) -> None:
        with context.complete():
            publish(PAID, {"order_id": 1})
            raise ValueError

    assert run(declare, work, takes_context=True).outcome == "failed"
    assert (OutboxEvent.objects.count(), Delivery.objects.count()) == (0, 0)


def test_savepoint_that_is_rolled_back_takes_its_events_along(declare: Declare, crm: Desk) -> None:
    """An event that was held back for the end of the block is not stored when its savepoint did not survive."""

    def work(context: JobContext) -> None:
        with context.complete():
            publish(PAID, {"order_id": 1})
            with undone():
                publish(PAID, {"order_id": 2})
            with transaction.atomic():
                publish(PAID, {"order_id": 3})

    run(declare, work, takes_context=True)

    assert sorted(OutboxEvent.objects.values_list("data", flat=True)) == ['{"order_id":1}', '{"order_id":3}']


@pytest.mark.parametrize("takes_context", [True, False])
def test_events_of_a_job_are_stored_in_the_order_of_their_keys(
    declare: Declare, crm: Desk, takes_context: bool
) -> None:
    """Two jobs that publish under the same keys in different order cannot deadlock."""

    def all_of_them() -> None:
        for number, key in ((1, "c"), (2, "a"), (3, ""), (4, "b"), (5, "a")):
            publish(PAID, {"order_id": number}, ordering_key=key)

    def work(context: JobContext) -> None:
        with context.complete():
            all_of_them()

    with CaptureQueriesContext(connection), Told() as told:
        run(declare, work if takes_context else all_of_them, takes_context=takes_context)

    stored = {row.pk: row for row in OutboxEvent.objects.all()}
    order = [stored[fields["event_id"]] for fields in told.named("event.publish")]  # type: ignore[index]
    assert [row.ordering_key for row in order] == ["", "a", "a", "b", "c"]
    assert [(row.data, row.key_seq) for row in order if row.ordering_key == "a"] == [
        ('{"order_id":2}', 1),
        ('{"order_id":5}', 2),
    ]
    assert OrderingKey.objects.count() == 3


def test_step_publishes_with_its_record(declare: Declare, crm: Desk) -> None:
    """A step that ran does not publish again."""

    def work(context: JobContext) -> None:
        context.step("tell", lambda: str(publish(PAID, {"order_id": 1})))
        context.step("tell", lambda: str(publish(PAID, {"order_id": 1})))

    run(declare, work, takes_context=True)

    assert OutboxEvent.objects.get().fence == 1


def test_elsewhere_in_a_handler_it_is_refused(declare: Declare, crm: Desk) -> None:
    """A crash would repeat it; detached accepts that, and the event is then not the job's."""
    errors: list[type[Exception]] = []

    def work(context: JobContext) -> None:
        try:
            publish(PAID, {"order_id": 1})
        except OutsideCompletionError as error:
            errors.append(type(error))
        publish(PAID, {"order_id": 2}, detached=True)
        with context.complete():
            pass

    attempt = run(declare, work, takes_context=True)

    assert errors == [OutsideCompletionError]
    stored = OutboxEvent.objects.get()
    assert (stored.job_id, stored.fence, stored.causation_id) == (None, None, str(attempt.job_id))


def ours() -> list[Route]:
    """Return what is declared without the shop's own subscriber."""
    return [route for route in routes() if route.destination == CRM]


def test_workers_add_subscriptions_and_end_none(crm: Desk) -> None:
    """A process with older code takes no route away; only a sync does, and what it ended no worker wakes."""
    with override_settings(DJANGO_JOBS={**settings.DJANGO_JOBS, "DESTINATIONS": {}}):
        announce(ours(), using="default")
        assert Subscription.objects.get(destination=CRM).ended_at is None
        assert CRM in [route.destination for route in sync(ours(), using="default").ended]
    assert [route.destination for route in announce(ours(), using="default")] == [CRM]
    published()
    assert OutboxEvent.objects.get().routed_count == 0

    assert [route.destination for route in sync(ours(), using="default").renewed] == [CRM]

    published()
    assert sorted(OutboxEvent.objects.values_list("routed_count", flat=True)) == [0, 1]


def test_subscribers_job_publishes_under_the_same_correlation(declare: Declare, subscriber: Subscribe) -> None:
    """What a subscriber publishes can be followed back to what began it."""
    event_type("tests.mailed", fields={})

    def work(event: Any) -> None:
        publish("tests.mailed", {})

    subscriber(work)
    try:
        first = published()
        delivered()
        attempt = run_one()
    finally:
        forget_event_type("tests.mailed")

    second = OutboxEvent.objects.get(type="tests.mailed")
    assert (second.correlation_id, second.causation_id) == (str(first), str(attempt.job_id))


def test_subscriber_stays_a_function_and_a_job(subscriber: Subscribe) -> None:
    """It takes (event) or (context, event); other options of a job hold, a key does not."""
    found = subscriber(lambda event: event, owner="shop", budget=timedelta(seconds=5))

    assert found.definition.options.owner == "shop"
    assert found("anything") == "anything"
    with pytest.raises(DefinitionError, match="takes"):
        subscriber(lambda order: None, type="tests.other")
    with pytest.raises(DefinitionError, match="has no option 'key'"):
        subscriber(lambda event: None, type="tests.other", key="x")
