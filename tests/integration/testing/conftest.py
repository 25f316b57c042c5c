"""The kit inside a test that is rolled back and inside one that commits, and handlers that are declared for one test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from django_jobs import job
from django_jobs.define.definition import DurableJob
from django_jobs.define.registry import unregister
from django_jobs.testing import JobsClock, JobsKit
from tests.databases import Server

Declare = Callable[..., DurableJob[..., Any]]


@pytest.fixture
def declare() -> Iterator[Declare]:
    """Make functions handlers of the types ``kit.<name>``, for this test."""
    names: list[str] = []

    def declared(func: Callable[..., Any], **options: Any) -> DurableJob[..., Any]:
        names.append(f"kit.{func.__name__}")
        return job(type=names[-1], **options)(func)

    yield declared
    for name in names:
        unregister(name)


@pytest.fixture(params=["rolled_back", "committed"])
def opened(request: pytest.FixtureRequest, server: Server) -> str:
    """The database, as a test that is rolled back has it, and as one that commits has it."""
    request.applymarker(pytest.mark.django_db(transaction=request.param == "committed"))
    request.getfixturevalue("db")
    assert connection.in_atomic_block == (request.param == "rolled_back")
    return str(request.param)


@pytest.fixture
def jobs_clock() -> Iterator[JobsClock]:
    """The clock of the kit."""
    with JobsClock() as clock:
        yield clock


@pytest.fixture
def jobs(opened: str, jobs_clock: JobsClock) -> Iterator[JobsKit]:
    """The kit in both kinds of test."""
    with JobsKit(clock=jobs_clock) as kit:
        yield kit
