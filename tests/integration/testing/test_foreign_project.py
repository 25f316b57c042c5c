"""The kit in somebody else's project: with pytest by its fixtures alone, and where there is no pytest."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = """
SECRET_KEY = "for this test"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "django_jobs", "till"]
DATABASES = {
    name: {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"} for name in ("default", "other")
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""
JOBS = """
from datetime import timedelta

from django.contrib.auth.models import Group

from django_jobs import job


@job
def book(name):
    Group.objects.create(name=name)


@job
def stray(name):
    Group.objects.using("other").create(name=name)


@job
def fail():
    raise ValueError("no such order")


@job(takes_context=True)
def book_early(context, name):
    Group.objects.using("other").create(name=f"{name} {Group.objects.using('other').count()}")
    with context.complete():
        pass
"""
WITH_PYTEST = """
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from till.jobs import book, fail


def test_without_a_marker(jobs):
    book.using(run_after=timedelta(days=1)).enqueue(name="ada")
    jobs.run_until_idle().assert_succeeded()
    assert Group.objects.get().name == "ada"
    assert connection.in_atomic_block


@pytest.mark.django_db(transaction=True)
def test_with_commits(jobs, jobs_clock):
    before = jobs_clock.now()
    book.using(run_after=timedelta(days=1)).enqueue(name="bob")
    jobs.run_until_idle().assert_succeeded()
    assert Group.objects.get().name == "bob"
    assert not connection.in_atomic_block
    assert jobs_clock.now() - before >= timedelta(days=1)


@pytest.mark.django_db
def test_a_failure_is_seen(jobs, fake_downstream):
    fail.enqueue()
    report = jobs.run_until_idle()
    assert [dead.error for dead in report.dead_letters] == ["no such order"]
    assert fake_downstream.calls == []
"""
WITHOUT_PYTEST = """
import sys

from django.contrib.auth.models import Group
from django.db import connections
from django.test import TestCase, TransactionTestCase

from django_jobs.testing import CrashMatrix, JobsFaults, JobsKit
from till.jobs import book, book_early, stray


class TillTests(TestCase):
    def setUp(self):
        self.jobs = self.enterContext(JobsKit())

    def test_books(self):
        book.enqueue(name="ada")
        self.jobs.run_until_idle().assert_succeeded()
        self.assertEqual(Group.objects.get().name, "ada")
        self.assertNotIn("pytest", sys.modules)


class OtherTests(TestCase):
    databases = {"default", "other"}

    def test_closed_database_was_left_alone(self):
        self.assertEqual(Group.objects.using("other").count(), 0)

    def test_jobs_of_another_database(self):
        jobs = self.enterContext(JobsKit(using="other"))
        book.using(database="other").enqueue(name="bob")
        jobs.assert_enqueued(book, count=1)
        jobs.run_until_idle().assert_succeeded()
        self.assertEqual(Group.objects.using("default").get().name, "bob")

    def test_rows_of_both_databases_are_looked_at(self):
        self.look_at_both()

    def look_at_both(self):
        matrix = CrashMatrix(self.enterContext(JobsKit()))
        with self.assertRaisesRegex(AssertionError, r"auth_group \\(other\\): 2"):
            matrix.check(handler=book_early, payload={"name": "ada"}, points=("finish.before",), kinds=("kill",))
        self.assertFalse(Group.objects.using("other").exists())


class CommittingTests(TransactionTestCase):
    # Nothing here has opened the other database before the job does.
    databases = {"default", "other"}
    test_rows_of_both_databases_are_looked_at = OtherTests.look_at_both

    def test_a_job_that_stands_still_opens_the_other_database(self):
        # A database in memory never closes: another object takes the place of the one that has it open.
        self.addCleanup(connections.__setitem__, "other", connections["other"])
        del connections["other"]
        self.assertIsNone(connections["other"].connection)
        jobs = self.enterContext(JobsKit())
        with JobsFaults(jobs) as faults:
            pause = faults.pause_at("finish.before")
            stray.enqueue(name="eve")
            jobs.drain()
            self.assertTrue(pause.is_paused)
            pause.resume()
        self.assertEqual(Group.objects.using("other").get().name, "eve")


class ClosedTests(TestCase):
    # The first class of all: the other database is open since its tables were made, and closed for these tests.

    def test_handler_has_the_databases_of_the_test_alone(self):
        jobs = self.enterContext(JobsKit())
        stray.enqueue(name="eve")
        (attempt, *_) = jobs.run_until_idle().attempts
        self.assertEqual(attempt.outcome, "failed")
        self.assertIn("not allowed", attempt.error)

    def test_every_fault_with_another_database_that_is_closed(self):
        matrix = CrashMatrix(self.enterContext(JobsKit()))
        matrix.check(handler=book, payload={"name": "ada"}, points=("handler.after", "finish.before"))

    def test_kit_of_a_closed_database_is_refused(self):
        with JobsKit(using="other") as jobs, self.assertRaisesRegex(AssertionError, "not allowed"):
            jobs.run_until_idle()
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one app, in a folder of its own."""
    folder = tmp_path_factory.mktemp("foreign")
    (folder / "till").mkdir()
    files = {
        "site_settings.py": SETTINGS,
        "till/__init__.py": "",
        "till/jobs.py": JOBS,
        "test_with_pytest.py": WITH_PYTEST,
        "till/tests.py": WITHOUT_PYTEST,
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def run(project: Path, *arguments: str) -> str:
    """Run Python there with the package on the path, and return what it printed; fail if it did not end well."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DATABASE", "PYTEST", "COV"))}
    environment = {**kept, "PYTHONPATH": f"{project}:{ROOT}", "DJANGO_SETTINGS_MODULE": "site_settings"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(("chosen", "passed"), [("without_a_marker", 1), ("not without_a_marker", 2)])
def test_r68_the_fixtures_work_in_a_foreign_project(project: Path, chosen: str, passed: int) -> None:
    """R68: with the plugin that this distribution names, a test asks for a fixture and has the database too."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    # By their modules, and no others: a plugin that is loaded by its name and by its module is refused.
    plugins = ("-p", "pytest_django.plugin", "-p", declared["django_jobs"], "-p", "no:cacheprovider")

    printed = run(project, "-m", "pytest", "-q", *plugins, "-k", chosen)

    assert f"{passed} passed" in printed


def test_r68_the_kit_needs_no_pytest(project: Path) -> None:
    """R68: Django's own runner runs jobs and matrices of one and of two databases, and pytest is never imported."""
    printed = run(project, "-m", "django", "test", "till", "-v", "0")

    assert "Ran 9 tests" in printed


def test_r68_the_plugin_is_lazy(project: Path) -> None:
    """R68: loading the plugin, as pytest does before settings are there, imports no model."""
    look = (
        "import sys, django_jobs.testing.plugin; "
        "sys.exit(bool({'django_jobs.models', 'django.db', 'django_jobs.testing.kit'} & set(sys.modules)))"
    )

    assert run(project, "-c", look) == ""
