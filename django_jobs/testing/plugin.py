"""The pytest plugin: fixtures over the kit. pytest loads it by the entry point ``django_jobs`` of this distribution.

It imports nothing of the package before a fixture is used, because it is loaded before Django has its settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django_jobs.testing import (
        CrashMatrix,
        FakeDownstream,
        JobsClock,
        JobsFaults,
        JobsKit,
        PostgresProxy,
        WorkerProcess,
    )


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


@pytest.fixture
def jobs_faults(jobs: JobsKit) -> Iterator[JobsFaults]:
    """Faults in what the kit runs; one that did not happen fails the test at its end."""
    from django_jobs.testing import JobsFaults

    with JobsFaults(jobs) as faults:
        yield faults


@pytest.fixture
def crash_matrix(jobs: JobsKit, fake_downstream: FakeDownstream) -> CrashMatrix:
    """The crash matrix of the kit, which looks at the ledger of ``fake_downstream`` too."""
    from django_jobs.testing import CrashMatrix

    return CrashMatrix(jobs, fake_downstream)


@pytest.fixture
def jobs_worker() -> Iterator[Callable[..., WorkerProcess]]:
    """A function that starts a real worker process, with the arguments of ``WorkerProcess``; killed at the end."""
    from django_jobs.testing import WorkerProcess

    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(WorkerProcess(**options))


@pytest.fixture
def pg_proxy() -> Iterator[Callable[..., PostgresProxy]]:
    """A function that puts a ``PostgresProxy`` before the database with a URL; closed at the end."""
    from django_jobs.testing import PostgresProxy

    with ExitStack() as stack:
        yield lambda url, **options: stack.enter_context(PostgresProxy(url, **options))
