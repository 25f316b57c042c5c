"""The kit in Django's own test classes, run by unittest on both databases."""

from __future__ import annotations

import unittest
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase
from pytest_django import DjangoDbBlocker

from django_jobs.exceptions import TransientError
from django_jobs.models import Job
from django_jobs.testing import JobsKit
from tests.databases import Server
from tests.integration.testing.conftest import Declare


def run(case: type[TransactionTestCase], blocker: DjangoDbBlocker) -> unittest.TestResult:
    """Run a test class as unittest does, in this process."""
    result = unittest.TestResult()
    with blocker.unblock():
        unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    return result


def told(result: unittest.TestResult) -> str:
    """Return what went wrong."""
    return "\n".join(text for _, text in [*result.errors, *result.failures])


def methods(base: type[TransactionTestCase], declare: Declare) -> type[TransactionTestCase]:
    """Return a test class on ``base`` with a handler that fails once, and a function of the site that enqueues it."""
    tries: list[int] = []

    def greet(name: str) -> None:
        Group.objects.create(name=name)
        transaction.on_commit(lambda: tries.append(1))
        if not tries:
            tries.append(0)
            raise TransientError("not yet")

    handler = declare(greet)

    class Tests(base):  # type: ignore[misc,valid-type]  # chosen by the caller
        def setUp(self) -> None:
            tries.clear()
            self.jobs = self.enterContext(JobsKit())

        def test_ordinary(self) -> None:
            """A retry and a hook take place."""
            handler.enqueue(name="ada")
            assert self.jobs.run_until_idle().outcomes == ["failed", "succeeded"]
            assert tries == [0, 1]
            assert Group.objects.get().name == "ada"

        def test_on_commit(self) -> None:
            """What waits for the commit is run by Django, and its job by the kit."""
            with self.captureOnCommitCallbacks(execute=True) if base is TestCase else transaction.atomic():
                transaction.on_commit(lambda: handler.enqueue(name="bob"))
            self.jobs.assert_enqueued(handler, {"name": "bob"}, count=1)
            self.jobs.run_until_idle()
            assert Group.objects.get().name == "bob"

        def test_queries(self) -> None:
            """The test counts its own queries alone."""
            handler.using(run_after=timedelta(hours=1)).enqueue(name="eve")
            with self.assertNumQueries(1):
                Group.objects.count()
            self.jobs.run_until_idle()
            with self.assertNumQueries(1):
                assert Group.objects.count() == 1

    return Tests


@pytest.mark.parametrize("base", [TestCase, TransactionTestCase])
def test_r68_jobs_run_inside_a_test_class(
    server: Server, django_db_blocker: DjangoDbBlocker, declare: Declare, base: type[TransactionTestCase]
) -> None:
    """R68: each method finds an empty site, runs its job, its retry and its hooks, and leaves nothing."""
    result = run(methods(base, declare), django_db_blocker)

    assert (result.testsRun, told(result)) == (3, "")
    with django_db_blocker.unblock():
        assert (Job.objects.count(), Group.objects.count()) == (0, 0)


def test_r68_rows_of_a_class_are_seen(server: Server, django_db_blocker: DjangoDbBlocker, declare: Declare) -> None:
    """R68: jobs see what setUpTestData made, and what one method's jobs did is gone in the next one."""

    def rename(name: str) -> None:
        Group.objects.update(name=name)

    handler = declare(rename)

    class Tests(TestCase):
        @classmethod
        def setUpTestData(cls) -> None:
            cls.group = Group.objects.create(name="before")

        def setUp(self) -> None:
            self.jobs = self.enterContext(JobsKit())

        def test_one(self) -> None:
            """The row of the class is there, and changed afterwards."""
            assert Group.objects.get().name == "before"
            handler.enqueue(name="one")
            self.jobs.drain().assert_succeeded()
            assert Group.objects.get().name == "one"

        def test_two(self) -> None:
            """It is as it was before the other method."""
            self.test_one()
            assert connection.in_atomic_block

    result = run(Tests, django_db_blocker)

    assert (result.testsRun, told(result)) == (2, "")
