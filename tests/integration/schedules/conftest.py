"""A clock that stands still until it is moved, and schedules that are forgotten after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_jobs import clock, job
from django_jobs.define import registry
from django_jobs.define import schedules as declared
from django_jobs.operate.schedule_runner import announce_schedules, serve

START = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)


class Hands:
    """What a test turns the clock with."""

    def __init__(self) -> None:
        self.now = START

    def move(self, **span: float) -> None:
        """Go on."""
        self.now += timedelta(**span)


@pytest.fixture
def hands() -> Iterator[Hands]:
    """The present, which a test moves."""
    found = Hands()
    with clock.override(lambda: found.now):
        yield found


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Forget what a test declared."""
    jobs, schedules = dict(registry._jobs), dict(declared._schedules)
    yield
    for known, before in ((registry._jobs, jobs), (declared._schedules, schedules)):
        known.clear()
        known.update(before)


@pytest.fixture
def scheduled(hands: Hands) -> Callable[..., Any]:
    """Declare a job type with a schedule and announce it, as a worker that starts does."""

    def declare(rule: Any, function: Any = None, **options: Any) -> Any:
        handler = job(type=options.pop("type", "tests.scheduled"), **options.pop("job", {}))(function or nothing)
        declared.forget_schedule(options.get("name") or handler.definition.job_type)
        found = declared.schedule(handler, rule, **options)
        announce_schedules(using="default")
        return found

    return declare


def nothing() -> None:
    """Do nothing."""


def turn() -> float:
    """Let one worker look."""
    return serve(using="default")
