"""Enqueueing by the kit, looking at a job, checking the rows, and running jobs at once."""

from __future__ import annotations

import uuid

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from django_jobs.exceptions import KitError, PermanentError, UnknownJobTypeError
from django_jobs.models import Attempt
from django_jobs.testing import JobsKit
from tests.integration.testing.conftest import Declare


def test_a_job_is_looked_at(jobs: JobsKit, declare: Declare) -> None:
    """The view of an enqueued job is read anew: state, attempts, effects and result."""

    def add(name: str) -> str:
        Group.objects.create(name=name)
        return name

    declare(add)
    job = jobs.enqueue("kit.add", {"name": "ones"}, key="k")
    assert (job.state, job.attempts, job.effects, job.result) == ("queued", [], [], None)

    jobs.run_until_idle()

    assert (job.state, job.result) == ("succeeded", "ones")
    assert [attempt.outcome for attempt in job.attempts] == ["succeeded"]
    assert repr(job) == f"<kit.add {job.id}: succeeded>"
    assert jobs.enqueue("kit.add", {"name": "ones"}, key="k").id == job.id


def test_what_is_not_there_is_told(jobs: JobsKit) -> None:
    """An unknown type and an unknown id are errors."""
    with pytest.raises(UnknownJobTypeError, match="No handler is registered"):
        jobs.enqueue("kit.nothing")
    with pytest.raises(KitError, match="There is no job"):
        jobs.job(uuid.uuid4())


def test_invariants_are_told_in_english(jobs: JobsKit, declare: Declare) -> None:
    """Sound rows pass; a contradiction is told with its meaning and its id."""

    def plain() -> None:
        pass

    job = jobs.enqueue(declare(plain))
    jobs.run_until_idle()
    jobs.assert_invariants()

    Attempt.objects.filter(job_id=job.id).update(number=7)

    with pytest.raises(AssertionError, match=r"(?s)The rows contradict the rules.*violates it: "):
        jobs.assert_invariants()


def test_inline_runs_at_once(jobs: JobsKit, declare: Declare) -> None:
    """A job has run when enqueue() returns, and what it enqueues too."""

    def second() -> None:
        Group.objects.create(name="second")

    follower = declare(second)

    def first() -> None:
        Group.objects.create(name="first")
        follower.enqueue()

    handler = declare(first)
    with jobs.inline() as inline:
        handler.enqueue()
        assert Group.objects.count() == 2

    assert inline.report.assert_succeeded().outcomes == ["succeeded", "succeeded"]
    handler.enqueue()
    assert Group.objects.count() == 2


def test_inline_waits_for_the_commit(jobs: JobsKit, declare: Declare) -> None:
    """Nothing runs inside of a transaction, and all of it has run at the end of the block."""

    def plain() -> None:
        Group.objects.create(name="row")

    handler = declare(plain)
    with jobs.inline() as inline:
        with transaction.atomic():
            handler.enqueue()
            assert not Group.objects.exists()
        assert len(inline.report) <= 1

    assert inline.report.outcomes == ["succeeded"]
    assert Group.objects.count() == 1


def test_inline_tells_failures(jobs: JobsKit, declare: Declare) -> None:
    """What a handler raises ends its attempt, as under a worker, and is in the report."""

    def broken() -> None:
        raise PermanentError("no")

    with jobs.inline() as inline:
        declare(broken).enqueue()

    with pytest.raises(AssertionError, match="PermanentError"):
        inline.report.assert_succeeded()
