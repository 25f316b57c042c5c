"""The pytest plugin: fixtures over the kit. pytest loads it by the entry point ``django_jobs`` of this distribution.

It imports nothing of the package before a fixture is used, because it is loaded before Django has its settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django_jobs.testing import FakeDownstream, JobsClock, JobsKit


@pytest.fixture
def jobs_clock() -> Iterator[JobsClock]:
    """The clock that the package and the statements of its store follow during the test."""
    from django_jobs.testing import JobsClock

    with JobsClock() as clock:
        yield clock


@pytest.fixture
def jobs(db: None, jobs_clock: JobsClock) -> Iterator[JobsKit]:  # noqa: ARG001  pytest-django looks for it beforehand
    """The kit on the default database, which is opened as a marker says, else rolled back."""
    from django_jobs.testing import JobsKit

    with JobsKit(clock=jobs_clock) as kit:
        yield kit


@pytest.fixture
def fake_downstream(jobs_clock: JobsClock) -> FakeDownstream:
    """A provider with a ledger, in memory, on the clock of the test."""
    from django_jobs.testing import FakeDownstream

    return FakeDownstream(now=jobs_clock.now)
