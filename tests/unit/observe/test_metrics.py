"""Each event of telemetry is counted under the right labels, and none can make a series per job."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from django_jobs import telemetry
from django_jobs.observe.labels import LIMIT, Names, band
from django_jobs.observe.metrics import Metrics

CHARGE = {"job_type": "shop.charge_order", "queue_name": "payments", "priority": 10}
LABELS = {"job_type": "shop.charge_order", "queue": "payments", "priority": "high"}


@pytest.fixture
def registry() -> CollectorRegistry:
    """A registry of this test's own."""
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> Metrics:
    """The metrics, which hear what the test tells them."""
    return Metrics(registry)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    """Return one series."""
    return registry.get_sample_value(f"django_jobs_{name}", labels)


@pytest.mark.parametrize(
    ("event", "more", "name", "labels"),
    [
        ("job.enqueue", {}, "enqueued_total", {"outcome": "created"}),
        ("enqueue.duplicate", {}, "enqueued_total", {"outcome": "duplicate"}),
        ("enqueue.conflict", {}, "enqueued_total", {"outcome": "conflict"}),
        ("job.renew", {}, "lease_renewals_total", {"outcome": "renewed"}),
        ("job.dead", {"reason": "age"}, "dead_lettered_total", {"reason": "age"}),
        ("job.rescue", {"cause": "expired"}, "lease_expirations_total", {}),
        ("job.rescue", {"cause": "exit"}, "lost_attempts_total", {"cause": "exit"}),
        ("lease.refused", {"operation": "renew"}, "fenced_writes_total", {"operation": "renew"}),
        ("lease.refused", {"operation": "renew"}, "lease_renewals_total", {"outcome": "not_owner"}),
        ("effect.unknown", {"name": "charge"}, "side_effects_total", {"effect": "charge", "outcome": "ambiguous"}),
        (
            "effect.reconciled",
            {"name": "charge", "verdict": "not_found", "final": True},
            "side_effects_total",
            {"effect": "charge", "outcome": "reconciled_absent"},
        ),
    ],
)
def test_event_is_counted(
    metrics: Metrics, registry: CollectorRegistry, event: str, more: dict[str, Any], name: str, labels: dict[str, str]
) -> None:
    """One event, one more in its series, with queue, type and band."""
    metrics(event, {**CHARGE, **more})

    assert value(registry, name, **LABELS, **labels) == 1


def test_end_of_an_attempt_is_counted_whole(metrics: Metrics, registry: CollectorRegistry) -> None:
    """Outcome, error class, duration, age, budget; and for a replayed job how the replay ended."""
    told = {"duration_s": 3.0, "age_s": 40.0, "over_budget": True, "generation": 2, **CHARGE}
    metrics("attempt.ended", {"outcome": "dead_lettered", "error_class": "unknown", "dead_reason": "age", **told})

    dead = {"outcome": "dead_lettered", **LABELS}
    assert value(registry, "attempts_total", **dead) == 1
    assert value(registry, "attempt_duration_seconds_sum", **dead) == 3
    assert value(registry, "attempt_errors_total", error_class="unknown", **LABELS) == 1
    assert value(registry, "attempts_over_budget_total", **LABELS) == 1
    assert value(registry, "completion_seconds_sum", state="dead_lettered", **LABELS) == 40
    assert value(registry, "replays_total", **dead) == 1


def test_events_from_and_to_outside_are_counted(metrics: Metrics, registry: CollectorRegistry) -> None:
    """A dispatch by event type, destination and outcome; a message by its consumer."""
    metrics("delivery.settle", {"event_type": "shop.order.paid", "destination": "partner", "outcome": "timeout"})
    metrics("inbox.duplicate", {"consumer": "payments"})

    sent = {"event_type": "shop.order.paid", "destination": "partner", "outcome": "timeout"}
    assert value(registry, "outbox_dispatches_total", **sent) == 1
    assert value(registry, "inbox_messages_total", consumer="payments", outcome="duplicate") == 1


def test_call_to_a_provider_is_counted_and_timed(metrics: Metrics, registry: CollectorRegistry) -> None:
    """By provider and outcome; how long the provider wants to be left alone is a series of its own."""
    told = {"downstream": "stripe", "outcome": "rejected", "seconds": 2.0, **CHARGE}
    metrics("downstream.called", {**told, "retry_after": timedelta(seconds=30)})
    metrics("downstream.called", {**told, "retry_after": None})

    of = {"downstream": "stripe", "outcome": "rejected", **LABELS}
    assert value(registry, "downstream_duration_seconds_count", **of) == 2
    assert value(registry, "downstream_duration_seconds_sum", **of) == 4
    assert value(registry, "downstream_retry_after_seconds_sum", downstream="stripe") == 30
    assert value(registry, "downstream_retry_after_seconds_count", downstream="stripe") == 1


def test_batch_and_outage_of_a_destination_are_counted(metrics: Metrics, registry: CollectorRegistry) -> None:
    """How long a publisher took, how long the destination wants to be left alone, and each pause of the breaker."""
    metrics("publisher.done", {"destination": "crm", "seconds": 1.5, "retry_after": timedelta(minutes=1)})
    metrics("publisher.done", {"destination": "crm", "seconds": 0.5, "retry_after": None})
    metrics("destination.down", {"destination": "crm", "failures": 1, "pause": 60.0})

    assert value(registry, "outbox_batch_duration_seconds_sum", destination="crm") == 2
    assert value(registry, "downstream_retry_after_seconds_sum", downstream="crm") == 60
    assert value(registry, "downstream_breaker_openings_total", downstream="crm") == 1


def test_confirmation_shows_the_delay(metrics: Metrics, registry: CollectorRegistry) -> None:
    """Since the event was published; a clock that is behind shows none, and what is sent again is left out."""
    told = {"event_type": "shop.order.paid", "destination": "crm"}
    for delay in (timedelta(seconds=3), timedelta(seconds=-1), None):
        metrics("delivery.publish", {**told, "delay": delay})

    assert value(registry, "outbox_dispatches_total", outcome="confirmed", **told) == 3
    assert value(registry, "outbox_dispatch_delay_seconds_count", destination="crm") == 2
    assert value(registry, "outbox_dispatch_delay_seconds_sum", destination="crm") == 3


def test_refused_calls_count_each_job(metrics: Metrics, registry: CollectorRegistry) -> None:
    """A bulk call that a full queue refused counts as many as it asked for."""
    metrics("enqueue.refused", {"count": 7, **CHARGE})

    assert value(registry, "enqueued_total", outcome="rejected_full", **LABELS) == 7


def test_claim_shows_the_delay(metrics: Metrics, registry: CollectorRegistry) -> None:
    """The time since the job was due."""
    metrics("job.claim", {"delay": timedelta(seconds=4), **CHARGE})

    assert value(registry, "queue_delay_seconds_sum", **LABELS) == 4


def test_no_producer_can_make_a_series_per_job(metrics: Metrics, registry: CollectorRegistry) -> None:
    """Types that are not registered, and queue names beyond the limit, share one series."""
    for number in range(LIMIT + 50):
        name = uuid.uuid4().hex
        metrics("job.enqueue", {"job_type": name, "queue_name": f"tenant-{number}", "priority": number})
    series = [
        sample for family in registry.collect() for sample in family.samples if sample.name.endswith("enqueued_total")
    ]

    assert {sample.labels["job_type"] for sample in series} == {"other"}
    assert len({sample.labels["queue"] for sample in series}) == LIMIT + 1


def test_band_is_the_sign_of_the_priority() -> None:
    """Low below zero, high above."""
    assert [band(priority) for priority in (-100, -1, 0, 1, 100, "")] == [
        "low",
        "low",
        "normal",
        "high",
        "high",
        "normal",
    ]


def test_names_beyond_the_limit_are_other() -> None:
    """Known ones stay known."""
    names = Names(2)

    assert [names.label(name) for name in ("a", "b", "c", "a")] == ["a", "b", "other", "a"]


def test_running_process_counts_its_enqueues_in_the_default_registry() -> None:
    """The package subscribes when the apps are ready: what django-prometheus shows has our counters."""
    from django.test import RequestFactory
    from django_prometheus.exports import ExportToDjangoView

    queue = f"q{uuid.uuid4().hex[:8]}"
    telemetry.emit("job.enqueue", job_id=uuid.uuid4(), job_type="shop.note_order", queue_name=queue, priority=0)
    page = ExportToDjangoView(RequestFactory().get("/metrics")).content.decode()

    line = f'django_jobs_enqueued_total{{job_type="shop.note_order",outcome="created",priority="normal",queue="{queue}"}} 1.0'
    assert line in page
    assert "django_jobs_backlog_jobs" not in page  # a web process never counts rows
