"""The doctor: each finding on what it is there for, and silence on a healthy database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections

from django_jobs import clock
from django_jobs.conf import get_settings
from django_jobs.models import Attempt, Job, Pause, Worker
from django_jobs.operate.doctor import Diagnosis, diagnose
from django_jobs.operate.doctor_database import OLD, database_looks
from django_jobs.operate.finding import Finding, Surroundings, some
from django_jobs.store.pauses import pause
from tests.databases import Server, point_default_at
from tests.integration.operate.stories import WORKER, Story

pytestmark = pytest.mark.django_db


def diagnosed(**options: Any) -> Diagnosis:
    """Look at the test's database."""
    return diagnose(using="default", **options)


def findings(**options: Any) -> dict[str, Finding]:
    """Return the findings by id, those about other sessions of the server left out."""
    return {item.id: item for item in diagnosed(**options).findings}


def worker(**fields: Any) -> Worker:
    """A live worker that serves every queue."""
    now = clock.now()
    return Worker.objects.create(
        **{
            "id": WORKER,
            "name": "web-1:4711",
            "pid": 4711,
            "job_types": '["shop.charge_order", "shop.note_order"]',
            "started_at": now - timedelta(days=2),
            "heartbeat_at": now,
            **fields,
        }
    )


def review() -> None:
    """Leave an effect to a human."""
    story = Story().claim()
    story.effect(dedupe="none").send().answer("unknown").review()
    story.fail(error_class="permanent", dead="effect_review")


def slow(job_type: str, took: timedelta) -> None:
    """Let a job of this type have run so long."""
    story = Story(job_type=job_type).claim().succeed()
    Attempt.objects.filter(job=story.job).update(started_at=story.now - took, finished_at=story.now)


def hold(kind: str, name: str) -> None:
    """Pause something."""
    pause(kind, name, actor="ann", reason="provider is down", using="default")


def aside() -> Story:
    """A due job of a type that nobody knows, set aside by a worker."""
    return Story(job_type="gone.type", state="scheduled", lane="!gone.type 1")


def silent(**fields: Any) -> None:
    """A worker that fell silent an hour ago."""
    worker(**{"heartbeat_at": clock.now() - timedelta(hours=1), **fields})


def test_healthy_site_has_nothing_to_mend() -> None:
    """A live worker, waiting and finished jobs: no warning."""
    worker()
    Story(owner="billing")
    Story().claim().succeed()

    found = diagnosed()

    assert [item for item in found.findings if item.level == "warning"] == []
    assert found.clean
    assert found.read_at is not None


CASES: list[tuple[str, Callable[[], object], str, str]] = [
    ("no-worker", Story, "warning", "jobs wait in payments"),
    ("queue-not-served", lambda: (Story(), worker(queues='["mail"]')), "warning", "serves payments"),
    ("queue-not-served", lambda: (Story(), worker(queues='{"except": ["payments"]}')), "warning", "serves payments"),
    ("silent-worker", silent, "warning", "web-1:4711 (last heard of"),
    ("blind-worker", lambda: silent(heartbeat_at=clock.now() - timedelta(seconds=17)), "warning", "web-1:4711 (last heard of"),
    ("silent-worker", lambda: (Story().claim(), silent(heartbeat_at=clock.now() - timedelta(days=9))), "warning", "holds running jobs"),
    ("past-lease", lambda: Story().claim(lease=timedelta(minutes=1)), "warning", "1 job in state running past the lease"),
    ("unknown-job-type", lambda: Story(job_type="gone.type").claim().fail(dead="age"), "warning", "gone.type"),
    ("unknown-payload-version", lambda: Story(payload_version=9), "warning", "shop.charge_order version 9"),
    ("type-without-worker", lambda: (Story(), worker(job_types="[]")), "warning", "Jobs of shop.charge_order wait"),
    ("code-versions-differ", lambda: (worker(code_version="1"), worker(id=Story().job.pk, code_version="2")), "warning", "1, 2"),
    ("long-atomic", lambda: slow("shop.note_order", timedelta(seconds=11)), "warning", "shop.note_order (11 s)"),
    ("stored-owner-unknown", lambda: Story(owner="nobody"), "warning", "nobody"),
    ("effect-needs-review", review, "warning", "1 effect of unknown outcome waits for a human; jobs: "),
    ("dead-letters", lambda: Story().claim().fail(dead="age"), "info", "1 dead letter"),
    ("paused", lambda: hold("queue", "mail"), "info", "queue mail (by ann: provider is down)"),
    ("set-aside", lambda: aside(), "warning", "gone.type 1"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "make", "level", "said"), CASES, ids=[f"{case[0]}-{n}" for n, case in enumerate(CASES)]
)
def test_finding_is_found(name: str, make: Callable[[], object], level: str, said: str) -> None:
    """What bites is named with its level, what it is about, and a mend."""
    make()

    found = findings()[name]

    assert (found.level, bool(found.mend)) == (level, True)
    assert said in found.text


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("no-worker", lambda: (Story(), worker())),
        ("queue-not-served", lambda: (Story(), worker(queues='["payments"]'))),
        ("queue-not-served", lambda: (Story(), worker(queues='["mail"]'), worker(id=Story().job.pk))),
        ("queue-not-served", lambda: (Story(), worker(queues='{"except": ["mail"]}'))),
        ("silent-worker", lambda: silent(stopped_at=clock.now())),
        ("blind-worker", silent),
        ("blind-worker", lambda: silent(heartbeat_at=clock.now() - timedelta(seconds=12))),
        ("silent-worker", lambda: silent(heartbeat_at=clock.now() - timedelta(days=9))),
        ("past-lease", lambda: Story().claim()),
        ("unknown-job-type", lambda: Story(job_type="gone.type").claim().fail(dead="age").discard()),
        ("unknown-payload-version", lambda: Story(job_type="gone.type", payload_version=9)),
        ("code-versions-differ", lambda: (worker(code_version="1"), silent(id=Story().job.pk, code_version="2"))),
        ("long-atomic", lambda: slow("shop.note_order", timedelta(seconds=9))),
        ("long-atomic", lambda: slow("shop.charge_order", timedelta(seconds=99))),
        ("stored-owner-unknown", lambda: Story(owner="nobody").claim().succeed()),
        ("dead-letters", lambda: Story().claim().fail(dead="age").discard()),
        (
            "paused",
            lambda: Pause.objects.create(
                kind="type",
                name="x",
                actor="a",
                reason="b",
                paused_until=clock.now() - timedelta(1),
                created_at=clock.now(),
            ),
        ),
        ("set-aside", lambda: (aside(), hold("type", "gone.type"))),
        ("type-without-worker", lambda: Story().claim().fail(dead="age") and worker(job_types="[]")),
        ("type-without-worker", lambda: (Story(job_type="gone.type"), worker())),
    ],
)
def test_finding_is_not_invented(name: str, make: Callable[[], object]) -> None:
    """What looks like it but does not bite is left alone."""
    make()

    assert name not in findings()


def test_long_is_what_the_caller_says() -> None:
    """The limit for atomic handlers can be set."""
    slow("shop.note_order", timedelta(seconds=9))

    assert "long-atomic" in findings(long=timedelta(seconds=5))


def test_long_atomic_looks_at_the_newest_jobs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the table, a bounded number of jobs is looked at."""
    monkeypatch.setattr("django_jobs.operate.doctor_jobs.LOOK_BACK", 2)
    slow("shop.note_order", timedelta(seconds=11))
    Story().claim().succeed()
    assert "long-atomic" in findings()

    Story().claim().succeed()

    assert "long-atomic" not in findings()


def test_code_of_this_process_is_compared(settings: Any) -> None:
    """If workers run other code than this process, this is told."""
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "CODE_VERSION": "build-2"}
    worker(code_version="build-1")

    found = findings()["code-version-here"]

    assert (found.level, found.text) == ("info", "Workers run code build-1, this process runs build-2.")


def test_dead_letters_alone_are_no_reason_to_fail() -> None:
    """Information leaves the diagnosis clean."""
    Story().claim().fail(dead="age")

    assert diagnosed().clean


def test_system_checks_are_part_of_the_look(settings: Any) -> None:
    """What the system checks say is a finding under their id, unless it is silenced."""
    settings.DJANGO_JOBS = {"OWNERS": {"shop": {}}}
    assert findings()["django_jobs.W301"].level == "warning"
    assert not diagnosed().clean

    settings.SILENCED_SYSTEM_CHECKS = ["django_jobs.W301"]

    assert "django_jobs.W301" not in findings()


def test_unapplied_migrations_end_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tables only this is told, with the command that mends it."""
    monkeypatch.setattr("django.db.migrations.recorder.MigrationRecorder.applied_migrations", lambda recorder: {})
    Story()

    found = diagnosed()

    assert [item.id for item in found.findings] == ["migrations"]
    assert "migrate --database default django_jobs" in found.findings[0].mend
    assert found.read_at is None


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("given", "problem", "said"),
    [
        ({}, "a notification did not arrive", "a notification did not arrive. Idle ones look for jobs every 1 s"),
        ({"LISTEN_DSN": "host=127.0.0.1 port=1"}, "", "no connection for it could be made (OperationalError)"),
        ({"NOTIFY": False}, "not asked", None),
        ({"TRANSACTION_POOLER": True}, "told by a check", None),
        ({}, "", None),
    ],
)
def test_workers_that_cannot_be_woken_are_told(
    settings: Any, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], problem: str, said: str | None
) -> None:
    """The doctor sends itself a notification, unless nobody wants one or none can come."""
    from django_jobs.worker.line import Line

    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, **given}
    real = Line.problem
    monkeypatch.setattr(Line, "problem", lambda line: problem or real(line))

    found = findings().get("no-notifications")

    assert (found is None) is (said is None)
    assert found is None or said in found.text


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("pragma", "name", "said"),
    [
        ("synchronous=NORMAL", "sqlite-synchronous", "synchronous=NORMAL"),
        ("synchronous=OFF", "sqlite-synchronous", "OFF"),
    ],
)
@pytest.mark.django_db(transaction=True)
def test_sqlite_that_really_runs_otherwise_is_told(pragma: str, name: str, said: str) -> None:
    """Not the settings count but how SQLite runs."""
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA {pragma}")
    try:
        assert said in findings()[name].text
    finally:
        connection.close()


@pytest.mark.sqlite
@pytest.mark.django_db(transaction=True)
def test_sqlite_without_a_write_ahead_log_is_told(server: Server, tmp_path: Path) -> None:
    """A journal of the old kind is told."""
    copy = tmp_path / "copy.sqlite3"  # nobody else has it open, which would keep the journal as it is
    with connection.cursor() as cursor:
        cursor.execute("VACUUM INTO %s", [str(copy)])
    point_default_at(f"sqlite:///{copy}")
    try:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode=DELETE")
        assert "journal_mode=delete" in findings()["sqlite-journal"].text
    finally:
        connection.close()
        server.activate()


@pytest.fixture
def forgotten() -> Iterator[Any]:
    """A session of its own with a transaction that nobody ends."""
    other = connections.create_connection("default")
    other.set_autocommit(False)
    with other.cursor() as cursor:
        cursor.execute("SET application_name = 'forgotten'")
        cursor.execute("SELECT 1")
    yield other
    other.close()


@pytest.mark.postgres
def test_forgotten_transaction_is_told(forgotten: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that stands open for long is named with its process, state and application."""
    assert "long-transaction" not in findings()
    monkeypatch.setattr("django_jobs.operate.doctor_database.OLD", timedelta(0))

    text = findings()["long-transaction"].text

    assert f"pid {forgotten.connection.info.backend_pid} (idle in transaction" in text
    assert "forgotten" in text
    assert timedelta(minutes=5) == OLD


@pytest.mark.postgres
def test_prepared_transaction_and_idle_slot_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions that were prepared and forgotten and slots without a reader are named."""
    monkeypatch.setattr(
        "django_jobs.operate.doctor_database._PREPARED",
        "SELECT 'tx-1', 600::float8 WHERE %s::interval IS NOT NULL",
    )
    monkeypatch.setattr("django_jobs.operate.doctor_database._SLOTS", "SELECT 'debezium'")

    found = findings()

    assert "tx-1 (10 min)" in found["prepared-transaction"].text
    assert "debezium" in found["idle-replication-slot"].text


@pytest.mark.postgres
@pytest.mark.parametrize(("age", "pool", "told"), [(0, None, True), (0, True, False), (60, None, False)])
def test_reconnecting_is_information(age: int, pool: Any, told: bool) -> None:
    """Opening a connection per request is told, but is no fault."""
    look = database_looks("postgresql")[0]
    around = Surroundings(using="default", now=clock.now(), rules=get_settings(), long=OLD)
    entry = connections.settings["default"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(entry, "CONN_MAX_AGE", age)
        patch.setitem(entry["OPTIONS"], "pool", pool)
        found = list(look(around))

    assert [(item.id, item.level) for item in found] == ([("reconnects", "info")] if told else [])


def test_long_lists_are_cut() -> None:
    """Ten names are told, and how many more there are."""
    assert some(range(12)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"


def test_looking_changes_nothing() -> None:
    """A diagnosis leaves every row as it was."""
    silent()
    review()
    before = list(Job.objects.order_by("pk").values())

    diagnosed()

    assert list(Job.objects.order_by("pk").values()) == before
