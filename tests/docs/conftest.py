"""A shop whose code moves here, as a page tells it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import ModuleType

import pytest
from django.test import override_settings

from django_jobs.testing import JobsClock, JobsKit
from tests.docs.moving import HAS_TASKS, Shop, moved

Follow = Callable[[str], tuple[ModuleType, ModuleType]]
Enter = Callable[[], JobsKit]
DURABLE = {"default": {"BACKEND": "django_jobs.backends.tasks.DurableBackend", "QUEUES": []}}


@pytest.fixture
def shop() -> Shop:
    """What the reader of a page has."""
    return Shop()


@pytest.fixture
def follow(shop: Shop, transactional_db: None) -> Iterator[Follow]:
    """Follow a page, as far as declarations go; returns the modules of its jobs and of its tasks."""
    with override_settings(TASKS=DURABLE), ExitStack() as stack:

        def start(name: str) -> tuple[ModuleType, ModuleType]:
            if name == "django-tasks-db" and not HAS_TASKS:
                pytest.importorskip("django_tasks")
            return stack.enter_context(moved(name, shop))

        yield start


@pytest.fixture
def enter(transactional_db: None) -> Iterator[Enter]:
    """Enter the test kit, when a page has been followed: it announces what is declared."""
    with JobsClock() as turned, ExitStack() as stack:
        yield lambda: stack.enter_context(JobsKit(clock=turned))
