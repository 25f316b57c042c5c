"""Hooks in the settings of one test, and handlers that note what is active in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.utils import translation

from django_jobs.testing import JobsClock, JobsKit
from tests import carriers
from tests.integration.worker.conftest import Declare, declare

__all__ = ["Declare", "declare"]

Use = Callable[..., None]


@pytest.fixture(autouse=True)
def _noted() -> Iterator[None]:
    """Begin with nothing noted, and with hooks that do as they should."""
    carriers.seen.clear()
    yield
    carriers.Unable.at_capture = carriers.Unable.at_restore = carriers.Unable.returned = None
    carriers.Raising.before = carriers.Raising.after = carriers.Raising.instead = None


@pytest.fixture
def use(settings: Any) -> Use:
    """Name hooks in the settings: those of ``tests.carriers`` by their class."""

    def named(*, context: tuple[Any, ...] = (), middleware: tuple[Any, ...] = (), **more: Any) -> None:
        paths = {"CONTEXT": context, "MIDDLEWARE": middleware}
        given = {key: [one if isinstance(one, str) else path_of(one) for one in found] for key, found in paths.items()}
        settings.DJANGO_JOBS = {**django_settings.DJANGO_JOBS, **given, **more}

    return named


def path_of(hook: type) -> str:
    """Return the dotted path of a class."""
    return f"{hook.__module__}.{hook.__qualname__}"


@pytest.fixture
def kit(transactional_db: None) -> Iterator[JobsKit]:
    """The kit, with a clock of its own, in a test whose transactions commit."""
    with JobsClock() as clock, JobsKit(clock=clock) as made:
        yield made


def note() -> None:
    """Be a handler that notes what is active."""
    carriers.seen.append(("handler", (carriers.tenant.get(), translation.get_language())))


def noted(name: str) -> list[Any]:
    """Return what was noted under a name."""
    return [value for key, value in carriers.seen if key == name]


def names() -> list[str]:
    """Return under which names something was noted, in order."""
    return [key for key, _ in carriers.seen]
