"""``receive()``: one job per message and consumer, whatever comes again, and no message lost or taken in silence."""

from __future__ import annotations

import json
import re
import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction

import django_jobs
from django_jobs import clock, receive
from django_jobs.enqueue import inside
from django_jobs.exceptions import (
    DefinitionError,
    KeyFormatError,
    OutsideCompletionError,
    PayloadError,
    QueueFullError,
)
from django_jobs.models import IdempotencyKey, InboxMessage, Job, JobPayload, Quarantine
from django_jobs.operate.verify import verify
from django_jobs.outbox.inbox import Received
from tests.declared import plain
from tests.declared_consumers import (
    books,
    needs_more,
    no_data,
    on_anything,
    on_payment,
    on_refund,
    renamed_consumer,
    stock,
)
from tests.scenes import NOON, Told

DATA = {"order": 7, "amount": "12.50"}
db = pytest.mark.django_db


def arguments() -> dict[str, Any]:
    """Return the arguments of the one job."""
    stored: dict[str, Any] = json.loads(JobPayload.objects.get().arguments)
    return stored


def rows() -> tuple[int, int, int]:
    """Return how many messages, jobs and quarantined messages there are."""
    return InboxMessage.objects.count(), Job.objects.count(), Quarantine.objects.count()


@db
def test_first_message_makes_a_job_and_a_row() -> None:
    """The job has the data, the row names the job, and the key says which message it is."""
    with clock.override(lambda: NOON), Told() as told:
        result = receive("payments", "evt_1", DATA, consumer=on_payment)

    job, message = Job.objects.get(), InboxMessage.objects.get()
    assert result == Received(outcome="created", job_id=job.pk)
    assert (job.job_type, job.queue_name, job.state, arguments()) == (
        "tests.on_payment",
        "payments",
        "queued",
        {"data": DATA},
    )
    assert (message.consumer, message.source, message.message_id) == ("tests.on_payment", "payments", "evt_1")
    assert (message.job_id, message.received_at, message.keep_until) == (job.pk, NOON, NOON + timedelta(days=35))
    key = IdempotencyKey.objects.get()
    assert (key.key, key.ttl_seconds) == ("inbox:payments:evt_1", 35 * 86400)
    assert [fields["message_id"] for event, fields in told.events if event == "inbox.created"] == ["evt_1"]


@db
def test_message_that_comes_again_is_a_duplicate() -> None:
    """It gets the job of the first one, and nothing is written, whatever its form: bytes, values, other spacing."""
    first = receive("payments", "evt_1", DATA, consumer=on_payment)

    with Told() as told:
        for again in (
            DATA,
            json.dumps(DATA).encode(),
            json.dumps(DATA, indent=3).encode(),
            bytearray(b'{"amount":"12.50","order":7}'),
        ):
            assert receive("payments", "evt_1", again, consumer=on_payment) == Received(
                outcome="duplicate", job_id=first.job_id
            )

    assert rows() == (1, 1, 0)
    assert [event for event, _ in told.events] == ["inbox.duplicate"] * 4


@db
def test_each_consumer_and_each_source_takes_a_message_for_itself() -> None:
    """Ids are unique within a source, and every consumer gets its job."""
    outcomes = [
        receive(source, "evt_1", DATA, consumer=consumer).outcome
        for source in ("payments", "shop")
        for consumer in (on_payment, on_refund)
    ]

    assert outcomes == ["created"] * 4
    assert rows() == (4, 4, 0)


@db
def test_consumers_that_share_a_key_scope_take_a_message_each() -> None:
    """A shared scope is for keys of the business: both consumers get their job, and each its own duplicate."""
    first = [receive("payments", "m1", {"n": 1}, consumer=consumer) for consumer in (books, stock)]
    again = [receive("payments", "m1", {"n": 1}, consumer=consumer) for consumer in (books, stock)]

    assert [received.outcome for received in (*first, *again)] == ["created", "created", "duplicate", "duplicate"]
    assert [received.job_id for received in again] == [received.job_id for received in first]
    assert set(Job.objects.values_list("job_type", flat=True)) == {"tests.on_payment_too", "tests.on_payment_as_well"}
    assert verify(using="default").violated == ()


@db
def test_shared_scope_still_joins_keys_of_the_business() -> None:
    """Enqueued directly, job types that name one scope share its keys."""
    books.enqueue(data=1)

    assert stock.enqueue(data=1).outcome == "duplicate"


@db
def test_tenants_do_not_meet() -> None:
    """The same id at two tenants is two messages, and the job knows its tenant."""
    results = [receive("payments", "1", DATA, consumer=on_payment.using(tenant=name)) for name in ("a", "b", "a")]

    assert [result.outcome for result in results] == ["created", "created", "duplicate"]
    assert sorted(Job.objects.values_list("tenant", flat=True)) == ["a", "b"]


@db
def test_handler_gets_what_it_takes_by_name() -> None:
    """Data always, id and source if the handler names them; its defaults stay, and ``**rest`` gets nothing."""
    receive("payments", "evt_1", DATA, consumer=on_refund)
    assert arguments() == {"data": DATA, "source": "payments", "message_id": "evt_1", "retries": 3}

    JobPayload.objects.all().delete()
    receive("payments", "evt_1", None, consumer=on_anything)
    assert arguments() == {"data": None}


@db
def test_other_content_under_a_known_id_is_put_aside() -> None:
    """Nothing is overwritten: the content is kept for a human, once, and the owner is told, once."""
    first = receive("payments", "evt_1", DATA, consumer=on_payment)

    with Told() as told:
        results = [receive("payments", "evt_1", {"order": 8}, consumer=on_payment) for _ in range(3)]

    assert (
        results
        == [Received(outcome="quarantined", job_id=first.job_id, reason="The id came before with other content.")] * 3
    )
    row = Quarantine.objects.get()
    assert (row.data, row.first_digest) == ('{"order":8}', InboxMessage.objects.get().data_digest)
    assert row.data_digest != row.first_digest
    assert [event for event, _ in told.events].count("inbox.quarantined") == 3
    alerts = [fields for event, fields in told.events if event == "owner.alert"]
    assert [(alert["reason"], alert["owner"], alert["message_id"]) for alert in alerts] == [
        ("quarantined", "billing", "evt_1")
    ]
    assert rows() == (1, 1, 1)


@db
def test_same_as_says_what_counts() -> None:
    """A time of sending may differ; the rest may not."""

    def content(data: dict[str, Any]) -> Any:
        return {name: value for name, value in data.items() if name != "sent_at"}

    outcomes = [
        receive("payments", "evt_1", body, consumer=on_payment, same_as=content).outcome
        for body in (b'{"order":7,"sent_at":1}', b'{"order":7,"sent_at":2}', b'{"order":8,"sent_at":1}')
    ]

    assert outcomes == ["created", "duplicate", "quarantined"]


@db
def test_same_as_that_fails_loses_no_message() -> None:
    """The function of the project did not expect this body: a human looks at it."""
    result = receive("payments", "evt_1", b'["no", "dict"]', consumer=on_payment, same_as=lambda data: data["order"])

    assert (result.outcome, result.reason) == ("quarantined", "same_as could not look at it: TypeError")
    assert Quarantine.objects.get().data == '["no","dict"]'


@db
@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"order=7", "not JSON"),
        (b'{"a":1,"a":2}', "a name twice"),
        (b'{"a":NaN}', "NaN, which JSON cannot say"),
        (b"\xff\xfe", "not UTF-8: byte 0"),
        (b'{"a":"\\u0000"}', "NUL character"),
        (b'{"a":"\\ud800"}', "lone surrogate"),
        (b"\x00", "not JSON"),
        (b"[" * 30 + b"]" * 30, "nested deeper than 20"),
        (b"[" * 60_000, "nested too deeply|not JSON"),
        (b"1" * 5000, "too long"),
        (b"1e999", "NaN or infinite"),
        (b"9007199254740993", "loses|lose digits"),
        (b'"' + b"x" * 65536 + b'"', "65538 bytes, more than 65536"),
        (
            b'"' + b"x" * 65530 + b'"',
            "bytes of JSON are more than 65536",
        ),  # fits alone, but not with the other arguments
    ],
)
def test_body_that_cannot_be_read_is_put_aside_once(body: bytes, why: str) -> None:
    """Never an exception, on both databases alike: the rubbish is kept, and a good body under the id is still taken."""
    results = [receive("payments", "evt_1", body, consumer=on_refund) for _ in range(2)]

    assert {result.outcome for result in results} == {"quarantined"}
    row = Quarantine.objects.get()
    assert results[0].reason == row.reason
    assert re.search(why, row.reason), row.reason
    assert receive("payments", "evt_1", DATA, consumer=on_refund).outcome == "created"
    assert receive("payments", "evt_1", body, consumer=on_refund).outcome == "quarantined"
    assert rows() == (1, 1, 1)


@db
@pytest.mark.parametrize("value", [{1, 2}, object(), b"x".join, datetime(2026, 1, 1), "a\x00", "\ud800", float("nan")])  # noqa: DTZ001
def test_values_of_the_caller_that_cannot_be_stored_are_an_error(value: Any) -> None:
    """What the caller made itself is the caller's mistake; nothing is written."""
    with pytest.raises(PayloadError):
        receive("payments", "evt_1", {"a": value}, consumer=on_payment)

    assert rows() == (0, 0, 0)


@db
@pytest.mark.parametrize("name", ["", "x" * 256, "a\x00b", "ä", "\ud800", " a", None, 7])
def test_names_that_no_database_could_keep_are_refused(name: Any) -> None:
    """Source and id are printable ASCII of a length that fits."""
    with pytest.raises(KeyFormatError):
        receive("payments", name, DATA, consumer=on_payment)
    with pytest.raises(KeyFormatError):
        receive(name, "evt_1", DATA, consumer=on_payment)

    assert rows() == (0, 0, 0)


@db
def test_ids_of_any_length_have_keys_of_their_own() -> None:
    """A key that would be too long is a digest; a point where two pairs could meet is encoded."""
    pairs = [
        ("a:b", "c"),
        ("a", "b:c"),
        ("a%3Ab", "c"),
        ("a", "x" * 255),
        ("a", "x" * 254 + "y"),
        ("s" * 200, "x" * 255),
    ]

    outcomes = [receive(source, message_id, DATA, consumer=on_payment).outcome for source, message_id in pairs]

    assert outcomes == ["created"] * len(pairs)
    assert IdempotencyKey.objects.values("key").distinct().count() == len(pairs)


@db
@pytest.mark.parametrize("consumer", [no_data, needs_more, plain, "tests.on_payment", lambda data: None])
def test_consumer_that_cannot_take_a_message_is_refused(consumer: Any) -> None:
    """The message says what its handler must take."""
    with pytest.raises(DefinitionError, match=r"cannot take messages|must be a @job"):
        receive("payments", "evt_1", DATA, consumer=consumer)


@db
@pytest.mark.parametrize("keep", [timedelta(minutes=59), timedelta(days=5000), 35, None])
def test_time_that_would_forget_too_soon_is_refused(keep: Any) -> None:
    """An hour is the least, ten years the most."""
    with pytest.raises(DefinitionError, match="keep must be"):
        receive("payments", "evt_1", DATA, consumer=on_payment, keep=keep)


@db
def test_renamed_consumer_remembers() -> None:
    """What was taken under the first name stays taken."""
    receive("payments", "evt_1", DATA, consumer=renamed_consumer)

    assert InboxMessage.objects.get().consumer == "tests.first_consumer"
    assert receive("payments", "evt_1", DATA, consumer=renamed_consumer).outcome == "duplicate"


@pytest.mark.django_db(transaction=True)
def test_rollback_of_the_caller_takes_everything_back() -> None:
    """In the caller's transaction message and job come and go together; alone they are committed at once."""
    with transaction.atomic():
        assert receive("payments", "evt_1", DATA, consumer=on_payment).outcome == "created"
        transaction.set_rollback(True)
    assert rows() == (0, 0, 0)

    assert receive("payments", "evt_1", DATA, consumer=on_payment).outcome == "created"
    assert not connection.in_atomic_block
    assert rows() == (1, 1, 0)


@pytest.mark.django_db(transaction=True)
def test_full_queue_leaves_no_message_behind(settings: Any) -> None:
    """The sender is told to come again, also in a transaction whose owner catches the error; then it is taken."""
    plain.using(queue_name="payments").enqueue()
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "QUEUES": {"payments": {"capacity": 1}}}

    with transaction.atomic():
        with pytest.raises(QueueFullError):
            receive("payments", "evt_1", DATA, consumer=on_payment)
        plain.enqueue()  # the transaction of the caller goes on
    with pytest.raises(QueueFullError):
        receive("payments", "evt_1", DATA, consumer=on_payment)
    assert InboxMessage.objects.count() == 0
    assert Job.objects.count() == 2

    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "QUEUES": {}}
    assert receive("payments", "evt_1", DATA, consumer=on_payment).outcome == "created"
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "QUEUES": {"payments": {"capacity": 1}}}
    assert receive("payments", "evt_1", DATA, consumer=on_payment).outcome == "duplicate"


@db
def test_key_that_outlived_the_row_still_answers() -> None:
    """The row was pruned, the job's key not yet: no second job; other content is put aside."""
    first = receive("payments", "evt_1", DATA, consumer=on_payment)
    InboxMessage.objects.all().delete()

    other = receive("payments", "evt_1", {"order": 8}, consumer=on_payment)
    assert (other.outcome, other.job_id) == ("quarantined", first.job_id)
    assert rows() == (0, 1, 1)

    again = receive("payments", "evt_1", DATA, consumer=on_payment)
    assert again == Received(outcome="duplicate", job_id=first.job_id)
    assert InboxMessage.objects.get().job_id == first.job_id
    assert rows() == (1, 1, 1)


@db
def test_message_after_key_and_row_are_gone_is_a_new_one() -> None:
    """Nobody remembers for ever: after both have expired it is taken again, and the new job knows the old one."""
    first = receive("payments", "evt_1", DATA, consumer=on_payment)
    Job.objects.update(state="succeeded", finished_at=clock.now() - timedelta(days=36))
    InboxMessage.objects.all().delete()

    again = receive("payments", "evt_1", DATA, consumer=on_payment)

    assert again.outcome == "created"
    assert again.job_id != first.job_id
    assert InboxMessage.objects.get().job_id == again.job_id
    assert JobPayload.objects.get(pk=again.job_id).previous_job_id == first.job_id


@db
def test_handler_receives_in_its_completion_only() -> None:
    """Elsewhere in a handler a crash would leave the message without the success that belongs to it."""
    running = inside.InsideJob(job_id=uuid.uuid4(), correlation_id="", traceparent="", commits_with_success=False)
    token = inside.current.set(running)
    try:
        with pytest.raises(OutsideCompletionError):
            receive("payments", "evt_1", DATA, consumer=on_payment)
        running.commits_with_success = True
        assert receive("payments", "evt_1", DATA, consumer=on_payment).outcome == "created"
    finally:
        inside.current.reset(token)


def test_names_are_public() -> None:
    """The package offers the door, the check and the module."""
    assert django_jobs.receive is receive
    assert django_jobs.inbox.receive is receive
    assert callable(django_jobs.verify_webhook)
