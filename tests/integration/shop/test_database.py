"""Which databases the demo takes, and what it removes there."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from django.db import connection

from django_jobs import clock
from django_jobs.models import Attempt, IdempotencyKey, Installation, Job, JobPayload, Worker
from testproject.demo.database import prepare
from testproject.demo.errors import DemoError
from testproject.demo.ordering import place
from testproject.demo.plan import make_plan
from testproject.shop.models import Order
from tests.integration.shop.conftest import MakeOrder, RunNext

ROOT = Path(__file__).resolve().parents[3]
PREPARE = """
import pathlib, sys, django
django.setup()
from django.conf import settings
from testproject.demo.database import prepare
from testproject.demo.plan import make_plan
settings.BASE_DIR = pathlib.Path(sys.argv[1])
print(prepare(make_plan()))
"""

pytestmark = pytest.mark.django_db(transaction=True)


def worker(**traits: object) -> Worker:
    """Store a worker that lives in this process."""
    usual = {"name": "demo-west", "host": os.uname().nodename, "pid": os.getpid()}
    now = clock.now()
    return Worker.objects.create(started_at=now, heartbeat_at=now, **(usual | traits))


def test_what_an_earlier_demo_left_is_removed(run_next: RunNext) -> None:
    """Orders, jobs and all that belongs to them go; the installation's own identity stays."""
    place(make_plan().rows[0])
    run_next()
    worker(stopped_at=clock.now())
    before = Installation.objects.get().namespace

    prepare(make_plan())

    left = [model.objects.count() for model in (Order, Job, JobPayload, IdempotencyKey, Attempt, Worker)]
    assert left == [0] * 6
    assert Installation.objects.get().namespace == before


def test_database_is_named(vendor: str) -> None:
    """The answer says which database is used."""
    assert prepare(make_plan()).startswith("SQLite, /" if vendor == "sqlite" else "PostgreSQL, database ")


def test_strange_jobs_are_not_touched(run_next: RunNext) -> None:
    """A database with another job type is refused, with the reason and the mend, and keeps everything."""
    place(make_plan().rows[0])
    Job.objects.filter(job_type="shop.note_order").update(job_type="billing.invoice")

    with pytest.raises(
        DemoError, match=r"holds 1 jobs that are not the demo's, for example billing\.invoice .* of its own"
    ):
        prepare(make_plan())

    assert (Job.objects.count(), Order.objects.count()) == (2, 1)


def test_strange_orders_are_not_touched(make_order: MakeOrder) -> None:
    """Orders that are not in the demo's file are refused and kept."""
    make_order(number="X-1")

    with pytest.raises(DemoError, match="holds 1 orders that are not the demo's, for example X-1"):
        prepare(make_plan())

    assert Order.objects.count() == 1


def test_strange_tables_are_not_joined() -> None:
    """A database of another site is refused before anything is created in it."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE blog_post (id integer)")
    try:
        with pytest.raises(DemoError, match="holds the table 'blog_post'"):
            prepare(make_plan())
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE blog_post")


def test_running_worker_is_not_disturbed() -> None:
    """While a worker of this machine or another one runs on the database, the demo does not start."""
    worker()
    with pytest.raises(DemoError, match=r"demo-west .* is running on this database"):
        prepare(make_plan())

    Worker.objects.update(host="elsewhere.example.com")
    with pytest.raises(DemoError, match=r"elsewhere\.example\.com"):
        prepare(make_plan())


def test_worker_whose_process_is_gone_does_not_stop_the_demo() -> None:
    """What a killed run left in the list of workers is no reason to wait."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait(10)
    worker(pid=ended.pid)

    prepare(make_plan())

    assert not Worker.objects.exists()


@pytest.mark.sqlite
def test_own_file_is_made_anew(tmp_path: Path) -> None:
    """The file demo.sqlite3 of the project is replaced, whatever it held; a file beside it is left alone."""
    own, other = tmp_path / "demo.sqlite3", tmp_path / "site.sqlite3"
    other.write_text("somebody's")
    own.with_name("demo.sqlite3-wal").write_text("left over")
    with closing(sqlite3.connect(own)) as old:
        old.execute("CREATE TABLE blog_post (id integer)")

    done = subprocess.run(
        [sys.executable, "-c", PREPARE, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": f"sqlite:///{own}", "DJANGO_SETTINGS_MODULE": "testproject.settings"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, f"SQLite, {own}\n"), done.stderr
    with closing(sqlite3.connect(own)) as new:
        tables = {name for (name,) in new.execute("SELECT name FROM sqlite_master")}
    assert "shop_order" in tables
    assert "blog_post" not in tables
    assert other.read_text() == "somebody's"
