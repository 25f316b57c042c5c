"""Pruning of many events: short batches, bounded memory, an end that is reached; the figures are printed, not asserted."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, models

from django_jobs.domain.ids import first_id
from django_jobs.models import Delivery, DeliveryAttempt, OutboxEvent, PrunedOrder, PrunedStretch
from django_jobs.operate.verify import verify
from django_jobs.store import prune as store_prune
from tests.databases import Server
from tests.factories_outbox import DeliveryFactory
from tests.integration.store.measuring import blocks, measured_prune

EVENTS = int(os.environ.get("TEST_PRUNE_EVENTS", "20000"))  # how many does not matter to what is asserted
MEMORY = 20 * 1024 * 1024  # bytes, whatever the number of events

# Ids that rise with time; two deliveries each, every tenth tried twice; half of the events belong to ``keys`` keys in turn.
# Each row is a copy of the one that the factories made, with other values in some columns.
FILL = """
WITH ids AS MATERIALIZED (
    SELECT n, (%(prefix)s || lpad(to_hex(n), 20, '0'))::uuid AS id,
        CASE WHEN n %% 2 = 0 THEN 'order:' || (n / 2 %% %(keys)s) ELSE '' END AS ordering_key,
        CASE WHEN n %% 2 = 0 THEN (n / 2 - 1) / %(keys)s + 1 END AS key_seq
    FROM generate_series(1, %(many)s) n
),
events AS (
    INSERT INTO django_jobs_outboxevent
    SELECT made.* FROM ids, django_jobs_outboxevent e, jsonb_populate_record(e, jsonb_build_object(
        'id', ids.id, 'ordering_key', ids.ordering_key, 'key_seq', ids.key_seq, 'routed_count', 2,
        'data', repeat('x', 500), 'created_at', %(then)s::timestamptz,
        'data_digest', 'v1:' || encode(sha256(convert_to(repeat('x', 500), 'UTF8')), 'hex'))) AS made
),
counters AS (
    INSERT INTO django_jobs_orderingkey (ordering_key, last_seq)
    SELECT ordering_key, MAX(key_seq) FROM ids WHERE ordering_key <> '' GROUP BY ordering_key
),
sent AS (
    INSERT INTO django_jobs_delivery
    SELECT made.* FROM ids, (VALUES ('crm'), ('local:shop.receipt')) AS way(name), django_jobs_delivery d,
        jsonb_populate_record(d, jsonb_build_object(
            'id', md5('d' || n || name)::uuid, 'event_id', ids.id, 'destination', name, 'ordering_key', ids.ordering_key,
            'key_seq', ids.key_seq, 'fence', 1 + (n %% 10 = 0)::int, 'published_at', %(then)s::timestamptz,
            'created_at', %(then)s::timestamptz)) AS made
    RETURNING id, fence
)
INSERT INTO django_jobs_deliveryattempt
SELECT made.* FROM sent, generate_series(1, sent.fence) AS place, django_jobs_deliveryattempt a,
    jsonb_populate_record(a, jsonb_build_object(
        'id', gen_random_uuid(), 'delivery_id', sent.id, 'number', place, 'started_at', %(then)s::timestamptz,
        'finished_at', %(then)s::timestamptz,
        'outcome', CASE WHEN place = sent.fence THEN 'confirmed' ELSE 'timeout' END)) AS made
"""

MESSAGES = """
WITH ids AS MATERIALIZED (
    SELECT n, (%(prefix)s || lpad(to_hex(n), 20, '0'))::uuid AS id FROM generate_series(1, %(many)s) n
),
taken AS (
    INSERT INTO django_jobs_inboxmessage (id, consumer, source, message_id, data_digest, received_at, keep_until)
    SELECT id, 'c', 's', 'm' || n, '', %(then)s, %(then)s::timestamptz + interval '1 day' FROM ids
)
INSERT INTO django_jobs_quarantine (id, consumer, source, message_id, data, data_digest, first_digest, reason, created_at)
SELECT id, 'c', 's', 'm' || n, '', '', '', 'no JSON', %(then)s FROM ids
"""


def fill(many: int, *, keys: int = 100) -> None:
    """Store so many events of two years ago; ``keys``: among how many ordering keys half of them are."""
    model = DeliveryFactory(published=True)
    _run(FILL, many, keys=keys)
    DeliveryAttempt.objects.filter(delivery_id=model.pk).delete()
    Delivery.objects.filter(pk=model.pk).delete()
    OutboxEvent.objects.filter(pk=model.event_id).delete()


def _run(statement: str, many: int, **more: int) -> None:
    then = datetime.now(UTC) - timedelta(days=730)
    with connection.cursor() as cursor:
        cursor.execute(statement, {"prefix": first_id(then).hex[:12], "many": many, "then": then, **more})
        cursor.execute("ANALYZE")


@pytest.mark.long
@pytest.mark.postgres
@pytest.mark.timeout(1800)
@pytest.mark.django_db(transaction=True)
def test_many_events_are_pruned_in_bounded_memory(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All go; no batch takes long, memory does not grow with their number, and it all adds up."""
    fill(EVENTS)
    run = measured_prune(monkeypatch)
    found = run.found
    with capsys.disabled():
        print(
            f"\npruned {EVENTS} events in {found.seconds:.1f} s: {EVENTS / found.seconds:.0f} events/s, longest batch "
            f"{run.slowest * 1000:.0f} ms, memory {run.peak / 1048576:.1f} MB, {PrunedStretch.objects.count()} records"
        )

    assert (found.events, found.kept_events, found.complete) == (EVENTS, {}, True)
    assert OutboxEvent.objects.count() == Delivery.objects.count() == DeliveryAttempt.objects.count() == 0
    assert PrunedStretch.objects.aggregate(many=models.Sum("rows"))["many"] == EVENTS
    assert PrunedOrder.objects.count() == 100
    assert run.peak < MEMORY
    assert not verify(using="default").violated


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("keys", [1, 500])
def test_looks_at_events_read_as_many_entries_as_they_take(server: Server, keys: int) -> None:
    """A look of ten events reads their deliveries and nothing else, in the middle of one hot ordering key too."""
    fill(5_000, keys=keys)
    now = datetime.now(UTC)
    dead = OutboxEvent.objects.exclude(ordering_key="").order_by("id").first()
    assert dead is not None
    limits = {"now": now, "events_before": now, "limit": 10, "held": None, "upto": first_id(now)}
    start = OutboxEvent.objects.order_by("id")[2_000].pk

    first, middle = (blocks("prune/events_due", {**limits, "after": after}) for after in (store_prune.START, start))
    Delivery.objects.filter(event_id=dead.pk).update(
        state="dead_lettered", dead_at=now, dead_reason="nacked", published_at=None
    )
    behind = blocks("prune/events_due", {**limits, "after": start})

    assert [rows for rows, _ in (first, middle, behind)] == [10, 10, 10]
    assert max(pages for _, pages in (first, middle, behind)) < 300


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_looks_at_messages_read_as_many_entries_as_they_take(server: Server) -> None:
    """A look of ten walks a primary key from where the last one ended."""
    _run(MESSAGES, 5_000)
    now = datetime.now(UTC)
    after = first_id(now - timedelta(days=731))
    limits = {"now": now, "quarantine_before": now, "limit": 10, "upto": first_id(now), "after": after}

    for kind in ("messages", "quarantine"):
        rows, pages = blocks(f"prune/{kind}_due", limits)
        assert (rows, pages < 300) == (10, True), kind
