"""Coroutines as handlers: on a loop of their own, with the worker's connection."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from django_jobs.testing import JobsKit
from tests.integration.tasks.declared import own_async, own_async_atomic

pytestmark = pytest.mark.django_db


def test_coroutine_with_a_context(jobs: JobsKit) -> None:
    """Its rows are written, and what it returns is the result."""
    result = own_async.enqueue(name="ada")
    jobs.drain()
    assert (result.refresh().result, User.objects.get().username) == ("ada 1", "ada")


def test_plain_coroutine_commits_with_its_success(jobs: JobsKit) -> None:
    """A failed coroutine leaves no row; one that returns leaves its row with its success."""
    bad, good = own_async_atomic.enqueue(name="bad", fail=True), own_async_atomic.enqueue(name="good")
    jobs.drain()
    assert [row.username for row in User.objects.all()] == ["good"]
    assert (bad.refresh().error_type, bad.refresh().is_finished) == ("ValueError", False)  # another attempt is due
    assert good.refresh().state == "succeeded"
