"""The page about django-tasks-db: tasks stay as they are, and what waits can be taken along."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib import admin
from django.db import connection
from django.test import override_settings

from django_jobs import clock
from django_jobs.models import Job
from tests.docs.conftest import Enter, Follow
from tests.docs.moving import Shop, listings


@pytest.mark.django_db(transaction=True)
def test_task_of_django_runs_as_it_is(follow: Follow, enter: Enter, shop: Shop) -> None:
    """The page about django-tasks-db changes the setting and no task; a task that shall not be retried is not."""
    module, bridges = follow("django-tasks-db")
    kit = enter()

    result = bridges.signed_up(shop.order(5))
    kit.run_until_idle()
    result.refresh()

    assert shop.done == [("remind", 5)]
    assert result.status == "SUCCESSFUL"
    assert module.try_once.definition.retry.unknown_attempts == 1


@pytest.fixture
def pages() -> Iterator[None]:
    """Take away the pages of the admin that an app brings which is installed for one test."""
    before = dict(admin.site._registry)
    yield
    admin.site._registry.clear()
    admin.site._registry.update(before)


@pytest.mark.django_db(transaction=True)
def test_tasks_that_wait_are_taken_along(follow: Follow, enter: Enter, shop: Shop, pages: None) -> None:
    """Each row of django-tasks-db becomes a job in one transaction, with its queue, priority and time."""
    pytest.importorskip("django_tasks_db")
    later = clock.now() + timedelta(hours=2)
    with override_settings(INSTALLED_APPS=[*settings.INSTALLED_APPS, "django_tasks_db"]):
        from django_tasks_db.models import DBTaskResult, get_date_max

        follow("django-tasks-db")
        with connection.schema_editor() as editor:
            editor.create_model(DBTaskResult)
        try:
            for user, due, status in (
                (1, get_date_max(), "READY"),
                (2, later, "READY"),
                (3, get_date_max(), "RUNNING"),
            ):
                DBTaskResult.objects.create(
                    args_kwargs={"args": [user], "kwargs": {}},
                    task_path="shop.tasks.remind",
                    queue_name="mail",
                    priority=4,
                    run_after=due,
                    status=status,
                    backend_name="default",
                )
            names: dict[str, Any] = {}
            exec(next(one.code for one in listings("django-tasks-db") if one.kind == "transfer"), names)

            assert (names["take_along"](), names["take_along"]()) == (2, 0)
            assert DBTaskResult.objects.get().status == "RUNNING"
        finally:
            with connection.schema_editor() as editor:
                editor.delete_model(DBTaskResult)
    assert set(Job.objects.values_list("queue_name", "priority")) == {("mail", 4)}
    kit = enter()
    kit.drain()
    assert shop.done == [("remind", 1)]
    kit.run_until_idle()
    assert shop.done == [("remind", 1), ("remind", 2)]
