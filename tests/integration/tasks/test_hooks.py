"""Stock tasks of Django go through the project's propagators and middleware."""

from __future__ import annotations

from typing import Any

import pytest

from django_jobs.models import JobPayload
from django_jobs.testing import JobsKit
from tests.carriers import Noting, Tenant, inside, seen
from tests.integration.hooks.conftest import path_of
from tests.integration.tasks.declared import add, told_async

pytestmark = pytest.mark.django_db


def test_a_task_carries_what_is_active(jobs: JobsKit, settings: Any) -> None:
    """It is captured where the task is enqueued, and active where it runs, a coroutine or not."""
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "CONTEXT": [path_of(Tenant)], "MIDDLEWARE": [path_of(Noting)]}
    seen.clear()
    with inside("acme"):
        results = [add.enqueue(1, b=5), told_async.enqueue("free")]
    jobs.drain()

    assert [value for name, value in seen if name == "outer ended"][2:] == ["acme", "acme"]
    assert set(JobPayload.objects.values_list("context", flat=True)) == {'{"tenant":"acme"}'}
    (enqueued, _, attempt, _) = [value for name, value in seen if name == "outer"]
    assert enqueued.rows == [attempt.arguments] == [{"args": [1], "kwargs": {"b": 5}}]
    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == [6, "free"]
