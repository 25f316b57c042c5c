"""Gauges say what the rows say, by a fixed number of queries, and a queue that emptied reads 0."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext, override_settings
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from django_jobs import clock, job
from django_jobs.define import registry
from django_jobs.models import Destination, Job, Subscription
from django_jobs.observe import gauges as room
from django_jobs.observe.catalogue import SPECS, Source
from django_jobs.observe.gauges import FRESH, DatabaseGauges
from django_jobs.observe.server import exposition
from django_jobs.store.overview import overview
from tests.databases import Server
from tests.factories import JobFactory, PauseFactory, SideEffectFactory, WorkerFactory
from tests.factories_observe import ObservedDeliveryFactory
from tests.factories_outbox import DestinationFactory, SubscriptionFactory
from tests.publishers import RECORDING

pytestmark = pytest.mark.django_db

Read = Callable[[], dict[str, float]]


@pytest.fixture
def declared() -> Iterator[str]:
    """A registered type of queue "counted" and low priority."""
    name = f"tests.counted_{uuid.uuid4().hex[:8]}"

    @job(type=name, queue_name="counted", priority=-5)
    def counted() -> None: ...

    yield name
    registry.unregister(name)


def values(gauges: DatabaseGauges) -> dict[str, float]:
    """Return each series as it is scraped, without the package's prefix."""
    text = generate_latest(_registry(gauges)).decode()
    return {
        f"{sample.name.removeprefix('django_jobs_')}{sorted(sample.labels.items())}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _registry(gauges: DatabaseGauges) -> object:
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(gauges)
    return registry


def series(name: str, job_type: str, *, queue: str = "counted", priority: str = "low", **more: str) -> str:
    """Return how :func:`values` calls a series of jobs."""
    labels = {"queue": queue, "job_type": job_type, "priority": priority, **more}
    return f"{name}{sorted(labels.items())}"


def test_backlog_is_counted_by_queue_type_band_and_state(gauges: DatabaseGauges, declared: str) -> None:
    """Each state of an unfinished job has its series; finished jobs are in none."""
    same = {"job_type": declared, "queue_name": "counted", "priority": -5}
    JobFactory.create_batch(2, queued=True, **same)
    JobFactory(queued=True, suspect=True, **same)
    JobFactory(scheduled=True, **same)
    JobFactory(scheduled=True, lane=f"!{declared} 1", **same)
    JobFactory(failed=True, **same)
    JobFactory(running=True, **same)
    JobFactory(running=True, lease_expires_at=clock.now() - timedelta(seconds=1), **same)
    JobFactory.create_batch(3, succeeded=True, **same)
    JobFactory.create_batch(2, dead_lettered=True, **same)
    JobFactory(dead_lettered=True, error_fingerprint="v1:" + "d" * 64, **same)
    JobFactory(discarded=True, **same)
    found = values(gauges)

    states = {"queued": 3, "scheduled": 1, "aside": 1, "retry": 1, "running": 2}
    assert {state: found[series("backlog_jobs", declared, state=state)] for state in states} == states
    assert found[series("expired_leases", declared)] == 1
    assert found[series("dead_letter_jobs", declared)] == 3
    assert found[series("dead_letter_groups", declared)] == 2
    assert found["exporter_up[]"] == 1


def test_oldest_age_counts_due_jobs_per_band(gauges: DatabaseGauges, declared: str) -> None:
    """The age of a band is that of its oldest due job, promoted or not; what is set aside or due later has none."""
    same = {"job_type": declared, "queue_name": "counted"}
    now = clock.now()
    JobFactory(queued=True, priority=-1, available_at=now - timedelta(minutes=5), **same)
    JobFactory(queued=True, priority=-9, available_at=now - timedelta(minutes=9), **same)
    JobFactory(failed=True, priority=7, available_at=now - timedelta(minutes=2), **same)
    JobFactory(scheduled=True, priority=0, **same)
    JobFactory(scheduled=True, priority=0, lane=f"!{declared} 1", available_at=now - timedelta(hours=9), **same)
    found = values(gauges)

    assert found[series("oldest_job_age_seconds", declared)] == pytest.approx(540, abs=5)
    assert found[series("oldest_job_age_seconds", declared, priority="high")] == pytest.approx(120, abs=5)
    assert found[series("oldest_job_age_seconds", declared, priority="normal")] == 0


def test_oldest_is_exact_behind_the_limit_of_the_look(declared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More jobs than a look takes do not hide the oldest one of a low priority."""
    monkeypatch.setattr("django_jobs.store.overview.LOOK", 3)
    same = {"job_type": declared, "queue_name": "counted"}
    JobFactory.create_batch(5, queued=True, priority=9, **same)
    JobFactory(queued=True, priority=-9, available_at=clock.now() - timedelta(hours=2), **same)

    found = overview(using="default")

    assert {item.priority for item in found.oldest} == {9, -9}
    assert max(item.age for item in found.oldest) > timedelta(minutes=119)
    if connection.vendor == "postgresql":
        assert sum(group.many for group in found.groups) == 3


def test_r73_an_emptied_queue_reads_zero(gauges: DatabaseGauges, declared: str) -> None:
    """R73: a declared queue reads 0 before its first job, and one that nobody declared once its last job is gone."""
    before = values(gauges)
    JobFactory(queued=True, queue_name="undeclared")
    during = values(gauges)
    Job.objects.all().delete()
    after = values(gauges)

    place = series("backlog_jobs", "other", queue="undeclared", priority="normal", state="queued")
    assert before[series("backlog_jobs", declared, state="queued")] == 0
    assert before[series("oldest_job_age_seconds", declared)] == 0
    assert place not in before
    assert (during[place], after[place]) == (1, 0)


def test_effects_of_unfinished_jobs_count_as_unresolved(gauges: DatabaseGauges) -> None:
    """One that is in flight or ambiguous, whatever its job waits for; a settled one and one of a discarded job do not."""
    for trait in ("running", "failed", "dead_lettered", "discarded"):
        owner = JobFactory(**{trait: True})
        SideEffectFactory(job=owner, name="charge", state="ambiguous", business_key=trait)
    SideEffectFactory(
        job=JobFactory(running=True),
        name="charge",
        business_key="done",
        state="succeeded",
        resolved_at=clock.now(),
        resolved_by="send",
    )
    found = values(gauges)

    assert found["unresolved_side_effects[('effect', 'charge')]"] == 3
    assert found["oldest_unresolved_side_effect_age_seconds[('effect', 'charge')]"] > 0


def test_deliveries_count_until_they_are_published(gauges: DatabaseGauges) -> None:
    """Pending, claimed and waiting ones are on their way; a dead one waits for a human; a published one is done."""
    for trait in ("waiting", "claimed", "published", "dead_lettered"):
        ObservedDeliveryFactory(**{trait: True})
    ObservedDeliveryFactory(created_at=clock.now() - timedelta(minutes=7))
    ObservedDeliveryFactory(destination="local:shop.note_order")
    found = values(gauges)

    assert found["outbox_pending_events[('destination', 'partner')]"] == 3
    assert found["outbox_pending_events[('destination', 'local:shop.note_order')]"] == 1
    assert found["outbox_dead_events[('destination', 'partner')]"] == 1
    assert found["outbox_oldest_event_age_seconds[('destination', 'partner')]"] == pytest.approx(420, abs=5)


def test_r73_breaker_reads_one_while_a_destination_is_down_and_zero_else(gauges: DatabaseGauges) -> None:
    """R73: a declared destination reads 0 before its first failure, and any other one once it answers again."""
    DestinationFactory(down=True)
    SubscriptionFactory()
    with override_settings(DJANGO_JOBS={"DESTINATIONS": {"quiet": {"PUBLISHER": RECORDING}}}):
        found = values(gauges)
        Destination.objects.update(failures=0, open_until=None)
        after = values(gauges)

    states = ("downstream_breaker_open", "downstream_breaker_failures")
    assert [found[f"{name}[('downstream', 'crm')]"] for name in states] == [1, 3]
    assert [found[f"{name}[('downstream', 'quiet')]"] for name in states] == [0, 0]
    assert [after[f"{name}[('downstream', 'crm')]"] for name in states] == [0, 0]


def test_breaker_of_a_removed_destination_is_none(gauges: DatabaseGauges) -> None:
    """Removed while it was down, it is tried by nobody: it reads 0 from then on, and 1 again if it comes back."""
    DestinationFactory(down=True)
    subscription = SubscriptionFactory()
    with override_settings(DJANGO_JOBS={"DESTINATIONS": {"crm": {"PUBLISHER": RECORDING}}}):
        down = values(gauges)
        Subscription.objects.filter(pk=subscription.pk).update(ended_at=clock.now())
        declared_only = values(gauges)
    removed = values(gauges)
    with override_settings(DJANGO_JOBS={"DESTINATIONS": {"crm": {"PUBLISHER": RECORDING}}}):
        back = values(gauges)

    for name, value in (("downstream_breaker_open", 1), ("downstream_breaker_failures", 3)):
        found = [look[f"{name}[('downstream', 'crm')]"] for look in (down, declared_only, removed, back)]
        assert found == [value, value, 0, value]


def test_workers_and_pauses(gauges: DatabaseGauges) -> None:
    """Workers that beat are live, silent ones stale, stopped ones gone; a held queue reads 1, the others 0."""
    WorkerFactory.create_batch(2)
    WorkerFactory(silent=True)
    WorkerFactory(stopped=True)
    PauseFactory(of_queue=True)
    with override_settings(DJANGO_JOBS={"QUEUES": {"reports": {"capacity": 70}}}):
        found = values(gauges)

    assert found["workers[('state', 'live')]"] == 2
    assert found["workers[('state', 'stale')]"] == 1
    assert found["queue_paused[('queue', 'default')]"] == 1
    assert found["queue_paused[('queue', 'payments')]"] == 0
    assert found["queue_capacity_jobs[('queue', 'reports')]"] == 70


def test_number_of_queries_is_fixed(gauges: DatabaseGauges, declared: str) -> None:
    """Ten queues with work cost as many queries as none."""
    with CaptureQueriesContext(connection) as empty:
        values(gauges)
    for number in range(10):
        JobFactory(queued=True, queue_name=f"q{number}")
        ObservedDeliveryFactory(destination=f"d{number}")
        DestinationFactory(name=f"d{number}", down=True)
    with CaptureQueriesContext(connection) as full:
        values(gauges)

    assert len(full) == len(empty) <= 14, [query["sql"][:60] for query in full]


def test_one_look_serves_everybody_for_a_while(declared: str, server: Server) -> None:
    """Within 15 s nobody looks again."""
    gauges = DatabaseGauges("default")
    values(gauges)
    with CaptureQueriesContext(connection) as queries:
        values(gauges)

    assert (len(queries), FRESH) == (0, 15.0)


def test_failed_look_tells_no_old_numbers(
    gauges: DatabaseGauges, declared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the database cannot be read, only that is told."""
    assert series("backlog_jobs", declared, state="queued") in values(gauges)

    def broken(*, using: str) -> None:
        raise DatabaseError("away")

    monkeypatch.setattr(room, "overview", broken)
    found = values(gauges)

    assert found["exporter_up[]"] == 0
    assert [name for name in found if name.startswith(("backlog", "workers", "oldest"))] == []


def test_every_database_gauge_is_exposed(declared: str) -> None:
    """The text names each gauge of the table, with its help."""
    text = exposition("default")

    names = [spec.full_name for spec in SPECS if spec.source is Source.DATABASE]
    assert [name for name in names if f"# HELP {name} " not in text] == []
    assert "django_jobs_build_info{" in text
