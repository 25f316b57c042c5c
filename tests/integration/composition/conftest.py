"""The kit on rows that commit, and handlers that are declared for one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_jobs.testing import JobsClock, JobsKit
from tests.integration.testing.conftest import Declare, declare

__all__ = ["Declare", "declare", "jobs"]


@pytest.fixture
def jobs(transactional_db: None) -> Iterator[JobsKit]:
    """The kit, with a clock of its own, in a test whose transactions commit."""
    with JobsClock() as clock, JobsKit(clock=clock) as kit:
        yield kit
