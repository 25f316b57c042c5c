"""The travel agency, empty, and a worker's execution in this process."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from django_jobs.models import Job
from django_jobs.worker.execute import execute
from tests.integration.compensation import trips
from tests.integration.worker.conftest import claimer

RunNext = Callable[[], Job]
Booked = Callable[..., uuid.UUID]


@pytest.fixture(autouse=True)
def agency() -> Iterator[trips.Agency]:
    """The agency, with nothing applied and no answers scripted."""
    trips.agency.__init__()  # type: ignore[misc]
    yield trips.agency
    trips.agency.__init__()  # type: ignore[misc]


@pytest.fixture
def run_next(transactional_db: None) -> RunNext:
    """Claim the next due job, execute it in this thread, and return it as it then is."""

    def run() -> Job:
        (attempt,) = claimer().take(1, 0)
        execute(attempt)
        return Job.objects.get(pk=attempt.job_id)

    return run


@pytest.fixture
def booked(run_next: RunNext) -> Booked:
    """Run a job with these steps, which dies at its end if asked to, and return its id."""

    def run(*steps: str, city: str = "Oslo", dies: bool = False) -> uuid.UUID:
        trips.book.enqueue(city=city, steps=list(steps), dies=dies)
        found = run_next()
        assert found.state == ("dead_lettered" if dies else "succeeded")
        return found.pk

    return run
