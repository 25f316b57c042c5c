"""The systems under comparison: how each is installed, started and read, and the settings that its documentation names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ADAPTERS = "recovery_site.adapters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to run a system.

    ``settle`` is after how many seconds without any movement its open jobs count as stuck: longer than the longest recovery
    that its own settings allow. ``poison`` is for how long its poison job is watched.
    """

    name: str
    settle: float
    poison: float = 240
    settings: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """What the harness must know of one system; an empty ``requirements`` means: this project, in this environment."""

    name: str
    package: str
    adapter: str
    worker: tuple[str, ...]
    states: str
    open: frozenset[str]
    failed: frozenset[str]
    variants: tuple[Variant, ...]
    apps: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    requirements: str = ""
    prepare: tuple[str, ...] = ()
    uses_django: bool = True


DJANGO = ("python", "-m", "django")
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}
OX = {"BACKEND": "django_ox.backend.OxBackend"}

SYSTEMS = (
    System(
        name="ours",
        package="django-durable-jobs",
        adapter=f"{ADAPTERS}.ours",
        apps=("django.contrib.auth", "django.contrib.contenttypes", "django_jobs"),
        worker=(*DJANGO, "runworker"),
        states="SELECT state, count(*) FROM django_jobs_job GROUP BY 1",
        open=frozenset({"scheduled", "queued", "running", "failed"}),
        failed=frozenset({"dead_lettered", "cancelled"}),
        variants=(Variant(name="defaults", settle=90), Variant(name="effect record", settle=90)),
    ),
    System(
        name="procrastinate",
        package="procrastinate",
        adapter=f"{ADAPTERS}.procrastinate",
        requirements="procrastinate.txt",
        apps=("procrastinate.contrib.django",),
        worker=(*DJANGO, "procrastinate", "worker"),
        states="SELECT status::text, count(*) FROM procrastinate_jobs WHERE task_name = 'effect' GROUP BY 1",
        open=frozenset({"todo", "doing", "aborting"}),
        failed=frozenset({"failed", "cancelled", "aborted"}),
        variants=(
            Variant(name="defaults", settle=90),
            # Its recipe runs each ten minutes, and takes a worker for dead after 30 s.
            Variant(name="recipe */10", settle=690, poison=1260, env={"RECOVERY_CRON": "*/10 * * * *"}),
            Variant(name="recipe each minute", settle=150, env={"RECOVERY_CRON": "* * * * *"}),
        ),
    ),
    System(
        name="django-tasks-db",
        package="django-tasks-db",
        adapter=f"{ADAPTERS}.django_tasks",
        requirements="django-tasks-db.txt",
        apps=("django_tasks_db",),
        settings={"TASKS": TASKS},
        worker=(*DJANGO, "db_worker"),
        states="SELECT status, count(*) FROM django_tasks_database_dbtaskresult GROUP BY 1",
        open=frozenset({"READY", "RUNNING"}),
        failed=frozenset({"FAILED"}),
        variants=(Variant(name="defaults", settle=90),),
    ),
    System(
        name="django-q2",
        package="django-q2",
        adapter=f"{ADAPTERS}.django_q2",
        requirements="django-q2.txt",
        apps=("django.contrib.auth", "django.contrib.contenttypes", "django_q"),
        settings={"Q_CLUSTER": {"name": "recovery", "orm": "default"}},
        worker=(*DJANGO, "qcluster"),
        states="SELECT 'queued', count(*) FROM django_q_ormq UNION ALL "
        "SELECT CASE WHEN success THEN 'success' ELSE 'failure' END, count(*) FROM django_q_task GROUP BY 1",
        open=frozenset({"queued"}),
        failed=frozenset({"failure"}),
        variants=(Variant(name="defaults", settle=150),),
    ),
    System(
        name="django-ox",
        package="django-ox",
        adapter=f"{ADAPTERS}.django_tasks",
        requirements="django-ox.txt",
        apps=("django_ox",),
        settings={"TASKS": {"default": OX}},
        worker=(*DJANGO, "ox_worker"),
        states="SELECT status, count(*) FROM django_ox_oxtask GROUP BY 1",
        open=frozenset({"READY", "RUNNING", "WAITING"}),
        failed=frozenset({"FAILED", "LOST"}),
        variants=(
            Variant(name="defaults", settle=400, poison=1000),
            # The value that its documentation gives for its own runs with kills.
            Variant(
                name="LOCK_TIMEOUT 15",
                settle=90,
                settings={"TASKS": {"default": {**OX, "OPTIONS": {"LOCK_TIMEOUT": 15}}}},
            ),
        ),
    ),
    System(
        name="django-reliable-outbox",
        package="django-reliable-outbox",
        adapter=f"{ADAPTERS}.reliable_outbox",
        requirements="django-reliable-outbox.txt",
        apps=("reliable_outbox",),
        worker=(*DJANGO, "outbox_worker"),
        states="SELECT status, count(*) FROM reliable_outbox_outboxmessage GROUP BY 1",
        open=frozenset({"pending"}),
        failed=frozenset({"dead"}),
        variants=(Variant(name="defaults", settle=150),),
    ),
    System(
        name="pgqueuer",
        package="pgqueuer",
        adapter=f"{ADAPTERS}.pgqueuer",
        requirements="pgqueuer.txt",
        worker=("python", "-m", f"{ADAPTERS}.pgqueuer"),
        prepare=("pgq", "install"),
        states="SELECT status::text, count(*) FROM pgqueuer GROUP BY 1",
        open=frozenset({"queued", "picked", "failed"}),
        failed=frozenset(),
        variants=(Variant(name="defaults", settle=120),),
        uses_django=False,
    ),
)


def find(name: str) -> System:
    """Return the system with this name."""
    return next(system for system in SYSTEMS if system.name == name)
