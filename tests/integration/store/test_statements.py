"""Statements give the same Python types on both databases, whatever the project's settings say about time."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.apps import apps
from django.db import connection, models
from django.test import override_settings

from django_jobs import clock, store
from django_jobs.domain.retry import Counters
from django_jobs.domain.states import DeadReason, LossCause
from django_jobs.models import Job, Worker
from django_jobs.models.fields import InstantField, from_text, to_text
from django_jobs.store import claims, statements
from django_jobs.store.completion import lock_for_completion
from django_jobs.store.keys import key_holder, note_duplicate
from django_jobs.store.times import database_now, read_now
from tests.databases import Server
from tests.factories import IdempotencyKeyFactory, JobFactory, WorkerFactory
from tests.scenes import BUDGET, NOON, failure, held, loss, new_job, request

# The hour that comes twice in Paris: 02:30 local is 00:30 UTC and 01:30 UTC.
TWICE = (datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 1, 30, tzinfo=UTC))


def test_column_of_one_name_means_the_same_in_every_table() -> None:
    """Rows are read by column name: no name may be an instant here and a text there."""
    seen: dict[str, set[str]] = {}
    for model in apps.get_app_config("django_jobs").get_models():
        if model._meta.model_name == "installation":  # read through its model alone
            continue
        for field in model._meta.concrete_fields:
            target = field.target_field if isinstance(field, models.ForeignKey) else field
            seen.setdefault(field.column, set()).add(type(target).__name__)
    special = {"InstantField", "UUIDField", "BooleanField"}
    mixed = {name: kinds for name, kinds in seen.items() if kinds & special and len(kinds) > 1}

    assert mixed == {}
    assert not set(statements.COMPUTED) & set(seen)
    assert statements.kinds()["job_id"] is models.UUIDField
    assert "correlation_id" not in statements.kinds()


def test_text_that_looks_like_a_uuid_stays_text(database: Server) -> None:
    """Correlation and subject are texts of the project; they come back as they were given."""
    text = str(uuid.uuid4())
    store.enqueue(new_job(correlation_id=text, subject=text, owner=text), using="default")

    (found,) = store.claim(request(1), using="default")

    assert (found.correlation_id, found.subject, found.owner) == (text, text, text)
    assert isinstance(found.job_id, uuid.UUID)


@pytest.mark.parametrize("vendor", ["postgresql", "sqlite"])
def test_names_are_the_files(vendor: str) -> None:
    """Every statement can be loaded by its name."""
    found = statements.names(vendor)

    assert {"claim", "enqueue", "succeed"} <= found
    assert all(statements.load(vendor, name) for name in found)


@pytest.mark.parametrize(
    "moment", [datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC), NOON]
)
def test_instant_is_a_text_of_fixed_width(moment: datetime) -> None:
    """Texts of different width compare wrongly on SQLite, so all have 26 signs, and read back as they were."""
    text = to_text(moment)

    assert len(text) == 26
    assert from_text(text) == moment


def test_instants_sort_as_text_like_as_time() -> None:
    """The order of the texts is the order of the instants, fractions and early years included."""
    moments = [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(999, 1, 1, tzinfo=UTC),
        *(NOON + timedelta(microseconds=step) for step in (0, 1, 1000, 999_999, 1_000_000)),
        datetime(9999, 12, 31, tzinfo=UTC),
    ]

    assert sorted(map(to_text, moments)) == [to_text(moment) for moment in moments]


def test_naive_datetime_is_refused_by_the_column(database: Server) -> None:
    """It names no instant, so it is an error and no guess."""
    with pytest.raises(ValueError, match="available_at needs an aware datetime"):
        JobFactory(available_at=datetime(2026, 1, 1))  # noqa: DTZ001


@pytest.fixture
def without_time_zones(server: Server) -> Iterator[None]:
    """Run in a project that switched USE_TZ off and lives in Paris."""
    with override_settings(USE_TZ=False, TIME_ZONE="Europe/Paris"):
        connection.close()
        yield
    connection.close()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("moment", [*TWICE, NOON])
def test_instants_are_the_same_without_use_tz(server: Server, without_time_zones: None, moment: datetime) -> None:
    """Neither USE_TZ nor the local zone changes an instant, not even in the hour that comes twice."""
    job = JobFactory(available_at=moment)
    assert Job.objects.get(available_at=moment).available_at == moment
    assert job.__class__.objects.filter(available_at__lt=moment).exists() is False

    with clock.override(lambda: moment):
        (found,) = store.claim(request(1), using="default")
        expires = store.renew(found, progress=1, total=None, lease=BUDGET, ends_at=moment + timedelta(hours=1))

    assert (found.claimed_at, expires) == (moment, found.lease_expires_at)
    job.refresh_from_db()
    assert job.lease_expires_at == expires
    assert abs(read_now("default") - clock.now()) < timedelta(seconds=30)


@pytest.mark.postgres
def test_database_s_clock_counts_where_there_is_one(database: Server) -> None:
    """Heartbeats and reads take the time from the server, not from a process whose clock is wrong."""
    worker = WorkerFactory()
    with time_machine.travel(timedelta(days=1)):
        wrong = clock.now()
        Worker.objects.filter(pk=worker.pk).update(heartbeat_at=database_now("default"))
        assert wrong - read_now("default") > timedelta(hours=23)

    worker.refresh_from_db()
    assert wrong - worker.heartbeat_at > timedelta(hours=23)


@pytest.mark.sqlite
@pytest.mark.django_db(transaction=True)
def test_time_is_read_after_the_wait_for_the_write_lock(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """On SQLite a transition begins to live when it gets the lock: a time from before the wait would be too old."""
    proof = held(JobFactory(running=True))
    begun: list[bool] = []
    now = clock.now
    monkeypatch.setattr(clock, "now", lambda: begun.append(connection.in_atomic_block) or now())

    store.succeed(proof, result=None, budget=BUDGET)

    assert begun == [True]


PARTS = ("beyond", "suspects")


@pytest.mark.postgres
@pytest.mark.parametrize(
    "without", [(), PARTS[:1], PARTS[1:], PARTS], ids=["whole", "no beyond", "no suspects", "least"]
)
def test_claim_without_some_of_its_parts(
    database: Server, monkeypatch: pytest.MonkeyPatch, without: tuple[str, ...]
) -> None:
    """Each form is a statement that finds what is ready; the parts are marked in pairs, and what is left out is gone."""
    monkeypatch.setattr(claims, "_not_needed", lambda *_: without)
    job = JobFactory(queued=True)
    (text,) = statements.load("postgresql", "claim", without)

    assert [found.job_id for found in store.claim(request(1), using="default")] == [job.pk]
    assert "-- part" not in text
    assert "-- end" not in text
    assert {part for part in PARTS if f"{part} AS MATERIALIZED" not in text} == set(without)


@pytest.fixture
def prepared(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run as a worker does: parameters bound on the server, statements kept prepared, plans made once."""
    monkeypatch.setattr(statements, "_prepare", False)  # put back afterwards
    statements.prepare_statements()
    connection.close()
    with connection.cursor() as cursor:
        cursor.execute("SET plan_cache_mode = force_generic_plan")
    yield
    connection.close()


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_every_statement_runs_prepared(server: Server, prepared: None) -> None:
    """The types of all parameters can be told without their values."""
    worker = WorkerFactory(silent=True)
    for _ in range(2):  # the second time from the prepared plan
        for ending in _endings().values():
            new = new_job(useful_for=timedelta(hours=1), delay=timedelta(0), key=str(uuid.uuid4()), key_scope="/x")
            assert store.enqueue(new, using="default") == "queued"
            (found,) = store.claim(request(1, worker_id=worker.pk), using="default")
            store.renew(found, progress=1, total=None, lease=BUDGET, ends_at=clock.now() + timedelta(hours=1))
            ending(found)
            assert key_holder("/x", new.key, using="default") is not None
            assert note_duplicate(new.job_id, dead=True, using="default") is True
            Job.objects.exclude(state="succeeded").delete()
        JobFactory(scheduled=True, available_at=clock.now())
        assert len(store.promote(["default"], using="default")) == 1
        Job.objects.update(useful_until=clock.now())
        assert len(store.expire(using="default")) == 1


def _endings() -> dict[str, Any]:
    hour = timedelta(hours=1)

    def complete(found: store.Claimed) -> None:
        from django.db import transaction

        with transaction.atomic():
            lock_for_completion(found, idle=hour)
            store.succeed(found, result="1", budget=BUDGET)

    return {
        "succeed": complete,
        "fail": lambda found: store.fail(found, failure=failure(), delay=hour, budget=BUDGET),
        "dead_letter": lambda found: store.dead_letter(found, failure=failure(), reason=DeadReason.AGE, budget=BUDGET),
        "snooze": lambda found: store.snooze(found, delay=hour, counters=Counters(), message="m", for_evidence=True),
        "release": lambda found: store.release(found, message="m"),
        "rescue": lambda found: store.rescue(found, loss=loss(LossCause.SILENT)),
    }


def test_boolean_column_comes_back_as_a_boolean(database: Server) -> None:
    """SQLite stores numbers; who reads a row through a statement does not see that."""
    assert statements._from_database("over_budget", 1, connection) is True
    assert statements._from_database("over_budget", None, connection) is None


@pytest.mark.parametrize(
    ("ttl", "ago", "live"),
    [(60.0, 59.999, True), (60.0, 60.0, False), (60.0, 61.0, False)],
)
def test_key_of_a_finished_job_lives_for_its_ttl(database: Server, ttl: float, ago: float, live: bool) -> None:
    """It answers until the very end of its time, and then no more."""
    with clock.override(lambda: NOON):
        job = JobFactory(succeeded=True, finished_at=NOON - timedelta(seconds=ago))
        IdempotencyKeyFactory(job_id=job.pk, ttl_seconds=ttl)
        holder = key_holder("/tests.work", "order:1", using="default")

    assert holder is not None
    assert holder.is_live is live


def test_instant_field_serves_both_databases(database: Server, vendor: str) -> None:
    """The column type is chosen per database, and a lookup with a text of the fixed form works too."""
    field = Job._meta.get_field("available_at")

    assert isinstance(field, InstantField)
    assert field.db_type(connection) == ("timestamp with time zone" if vendor == "postgresql" else "datetime")
    JobFactory(available_at=NOON)
    assert Job.objects.filter(available_at=to_text(NOON) + ("+00" if vendor == "postgresql" else "")).exists()


@pytest.mark.sqlite
def test_sqlite_adds_nothing_to_no_time(database: Server) -> None:
    """As PostgreSQL does: a sum with NULL is NULL."""
    statements._prepare_sqlite(connection)
    with connection.cursor() as cursor:
        cursor.execute("SELECT django_jobs_add(NULL, 5), django_jobs_add('2026-03-01 12:00:00.000000', NULL)")

        assert cursor.fetchone() == (None, None)
