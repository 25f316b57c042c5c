"""The kit tells which rows of a handler a crash would repeat, with the handler's line."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from django_jobs import JobContext
from django_jobs.testing import JobsKit, RepeatableWriteWarning
from tests.integration.testing.conftest import Declare


@pytest.mark.parametrize("in_atomic", [False, True])
def test_r68_a_write_before_completion_is_told(jobs: JobsKit, declare: Declare, in_atomic: bool) -> None:
    """R68: a row that commits before the success is warned about, at the line of the handler that wrote it."""

    def early(context: JobContext) -> None:
        if in_atomic:
            with transaction.atomic():
                Group.objects.create(name="early")
        else:
            Group.objects.create(name="early")
        with context.complete():
            Group.objects.update(name="late")

    declare(early, takes_context=True).enqueue()

    with pytest.warns(RepeatableWriteWarning, match="wrote to auth_group outside") as told:
        jobs.run_one()

    (one,) = told
    line = Path(__file__).read_text().splitlines()[one.lineno - 1]
    assert (Path(one.filename), line.strip()) == (Path(__file__), 'Group.objects.create(name="early")')


def test_r68_what_commits_with_the_success_is_not_told(jobs: JobsKit, declare: Declare) -> None:
    """R68: plain handlers, completions, steps and enqueues are silent, and so are the rows of the test."""

    def plain() -> None:
        Group.objects.create(name="plain")
        handler.enqueue()

    def steps(context: JobContext) -> None:
        context.step("one", lambda: Group.objects.create(name="step").pk)
        with context.complete():
            Group.objects.create(name="complete")

    handler = declare(steps, takes_context=True)
    declare(plain).enqueue()

    with warnings.catch_warnings():
        warnings.simplefilter("error", RepeatableWriteWarning)
        Group.objects.create(name="of the test")
        jobs.run_until_idle().assert_succeeded()

    assert Group.objects.count() == 4
