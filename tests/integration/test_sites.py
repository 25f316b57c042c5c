"""Sites that are set up otherwise than the test project: each runs a job from enqueue to verified success."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from tests.clusters import Cluster

ROOT = Path(__file__).resolve().parents[2]
ENQUEUE = """
import django
django.setup()
from django.db import connections
from tests.acceptance.handlers import row, work
with connections["default"].cursor() as cursor:
    cursor.execute("CREATE TABLE acceptance_witness (n integer, pid integer)")
row.enqueue(n=1)
work.using(key="once").enqueue(n=2)
again = work.using(key="once").enqueue(n=2)
print(again.outcome)
"""
ENQUEUE_LATER = """
import django
django.setup()
from datetime import timedelta
from tests.acceptance.handlers import row
print(row.using(run_after=timedelta(hours=1)).enqueue(n=3).state)
"""


def run(command: list[str], *, settings: str, database_url: str, **more: str) -> str:
    """Run a program of such a site to its end and return what it printed."""
    environment = {
        **os.environ,
        "DATABASE_URL": database_url,
        "DJANGO_SETTINGS_MODULE": settings,
        "JOBS_IMPORTS": "tests.acceptance.handlers",
        **more,
    }
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def manage(*arguments: str, **where: str) -> str:
    """Run ``manage.py`` of such a site."""
    return run(["manage.py", *arguments], **where)


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_databases(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """URLs of two databases without tables: migrations of the site make them."""
    if request.param == "sqlite":
        return [f"sqlite:///{tmp_path / name}.sqlite3" for name in ("one", "two")]
    own: Cluster = request.getfixturevalue("cluster")
    with psycopg.connect(own.url(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE one")
        admin.execute("CREATE DATABASE two")
    return [urlunsplit(urlsplit(own.url())._replace(path=f"/{name}")) for name in ("one", "two")]


@pytest.mark.slow
@pytest.mark.parametrize("site", ["no_time_zones", "replica", "uuid_user"])
def test_site_runs_jobs_from_enqueue_to_success(site: str, empty_databases: list[str], tmp_path: Path) -> None:
    """Jobs of a differently built site run once, wait until they are due, and verify clean."""
    primary, replica = empty_databases
    where = {
        "settings": f"tests.variants.{site}",
        "database_url": primary,
        "REPLICA_URL": replica,
        "JOBS_WITNESS": str(tmp_path / "witness"),
    }
    manage("migrate", "--verbosity", "0", **where)

    told = run(["-c", ENQUEUE], **where)
    manage("runworker", "--drain", **where)

    assert told.split() == ["duplicate"]
    assert run(["-c", ENQUEUE_LATER], **where).split() == ["scheduled"]
    listed = manage("jobs", "list", "--json", **where).splitlines()
    assert sorted(json.loads(line)["state"] for line in listed) == ["scheduled", "succeeded", "succeeded"]
    manage("jobs", "verify", **where)
    manage("makemigrations", "--check", "--dry-run", "django_jobs", **where)


ENQUEUE_ELSEWHERE = """
import django
django.setup()
from django.db import connections, transaction
from tests.variants.elsewhere_handlers import work
with connections["jobs"].cursor() as cursor:
    cursor.execute("CREATE TABLE elsewhere_rows (n integer)")
with transaction.atomic(using="jobs"):
    print(work.using(key="once").enqueue(n=1).outcome)
print(work.using(key="once").enqueue(n=1).outcome)
"""
LOOK_ELSEWHERE = """
import django
django.setup()
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client
from django.urls import reverse
from django_jobs.models import Job
with connections["jobs"].cursor() as cursor:
    cursor.execute("SELECT n FROM elsewhere_rows ORDER BY n")
    print([n for (n,) in cursor.fetchall()])
client = Client()
client.force_login(User.objects.create_superuser("ann"))
for model in ("job", "outboxevent", "worker", "operatoraction", "deadletter"):
    page = client.get(reverse(f"admin:django_jobs_{model}_changelist"))
    print(page.status_code)
job = Job.objects.get(job_type="elsewhere.work")
page = client.get(reverse("admin:django_jobs_job_change", args=[job.pk]))
print(page.status_code, b"It succeeded" in page.content or b"succeeded" in page.content)
"""


def test_r59_site_without_a_default_database(empty_databases: list[str]) -> None:
    """R59: jobs in a database of their own, no default at all: checks, jobs, events, commands and the admin work."""
    jobs, main = empty_databases
    where = {
        "settings": "tests.variants.elsewhere",
        "database_url": jobs,
        "REPLICA_URL": main,
        "JOBS_IMPORTS": "tests.variants.elsewhere_handlers",
    }
    manage("migrate", "--database", "jobs", "--verbosity", "0", **where)
    manage("migrate", "--database", "main", "--verbosity", "0", **where)
    manage("check", "--database", "jobs", "--fail-level", "ERROR", **where)

    assert run(["-c", ENQUEUE_ELSEWHERE], **where).split() == ["created", "duplicate"]
    manage("runworker", "--drain", **where)

    told = run(["-c", LOOK_ELSEWHERE], **where).splitlines()
    assert told == ["[1, 101]", *["200"] * 5, "200 True"]
    manage("jobs", "verify", **where)
    manage("jobs", "doctor", **where)
    assert "succeeded" in manage("jobs", "list", "--json", **where)
    manage("jobs", "status", **where)
    manage("jobs", "prune", **where)
    manage("makemigrations", "--check", "--dry-run", "django_jobs", **where)


def test_deployment_check_has_nothing_to_say(empty_databases: list[str], tmp_path: Path) -> None:
    """``check --deploy`` of a site that follows Django's advice stays silent, down to warnings."""
    where = {
        "settings": "tests.variants.production",
        "database_url": empty_databases[0],
        "EMAIL_BACKEND": "django_jobs.backends.email.EmailBackend",
    }

    told = manage("check", "--deploy", "--database", "default", "--fail-level", "WARNING", **where)

    assert "no issues" in told
