"""The demo's database: made fresh on SQLite, checked and cleared on a database that was given."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, connection, models, transaction

from django_jobs import clock
from django_jobs.models import Installation, Job, Worker
from testproject.demo.errors import DemoError
from testproject.demo.plan import Plan
from testproject.demo.workers import NAME_PREFIX
from testproject.shop.models import Order

JOB_TYPES = ("shop.charge_order", "shop.note_order", "shop.send_receipt", "django_jobs.compensate")
FRESH_FILE = "demo.sqlite3"
MEND = "Give the demo a database of its own."
ALIVE = timedelta(seconds=60)  # a worker of another host whose last sign of life is younger may still run


def prepare(plan: Plan) -> str:
    """
    Leave an empty, migrated database behind and say in a few words which one it is.

    The file demo.sqlite3 in the project's folder is made anew; of any other database only what an earlier demo wrote is
    removed. Raises DemoError if it holds anything else, or if a worker is running on it.
    """
    path = file_of_database()
    try:
        if path is not None and path == Path(settings.BASE_DIR) / FRESH_FILE:
            _recreate(path)
        else:
            _refuse_strangers(plan)
        call_command("migrate", verbosity=0, interactive=False)
        _clear()
    except DatabaseError as error:
        raise DemoError(f"The database cannot be used: {error}") from error
    return f"SQLite, {path}" if path else f"PostgreSQL, database {connection.settings_dict['NAME']}"


def file_of_database() -> Path | None:
    """Return the SQLite file, or None on another database."""
    return Path(connection.settings_dict["NAME"]) if connection.vendor == "sqlite" else None


def _recreate(path: Path) -> None:
    if path.exists() and _table(Worker) in connection.introspection.table_names():
        _refuse_running_workers()
    connection.close()
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _refuse_strangers(plan: Plan) -> None:
    tables = set(connection.introspection.table_names())
    own = set(connection.introspection.django_table_names(include_views=False)) | {"django_migrations"}
    if strange := sorted(tables - own):
        raise DemoError(f"This database holds the table {strange[0]!r}, which is none of the demo's. {MEND}")
    if _table(Job) in tables:
        _refuse_running_workers()
        _refuse_jobs()
    if _table(Order) in tables:
        _refuse_orders(plan)


def _refuse_jobs() -> None:
    others = Job.objects.exclude(job_type__in=JOB_TYPES)
    if found := others.order_by("id").first():
        raise DemoError(
            f"This database holds {others.count()} jobs that are not the demo's, "
            f"for example {found.job_type} {found.pk}. {MEND}"
        )


def _refuse_orders(plan: Plan) -> None:
    others = Order.objects.exclude(number__in=[row.number for row in plan.rows])
    if found := others.first():
        raise DemoError(
            f"This database holds {others.count()} orders that are not the demo's, for example {found.number}. {MEND}"
        )


def _refuse_running_workers() -> None:
    for worker in Worker.objects.filter(stopped_at__isnull=True):
        if _runs(worker):
            raise DemoError(
                f"Worker {worker.name} (process {worker.pid} on {worker.host}) is running on this database. "
                "Stop it, or give the demo a database of its own."
            )


def _runs(worker: Worker) -> bool:
    if worker.host != os.uname().nodename:
        return worker.heartbeat_at > clock.now() - ALIVE
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return worker.heartbeat_at > clock.now() - ALIVE


def _clear() -> None:
    """Delete the jobs, all of which are the demo's by now, with everything that belongs to them, and the orders."""
    with transaction.atomic():
        for model in apps.get_app_config("django_jobs").get_models():
            if model not in (Installation, Worker):
                models.QuerySet(model).delete()  # the audit's own querysets refuse to
        Worker.objects.filter(name__startswith=NAME_PREFIX).delete()
        Order.objects.all().delete()


def _table(model: type[models.Model]) -> str:
    return model._meta.db_table  # noqa: SLF001  documented by Django
