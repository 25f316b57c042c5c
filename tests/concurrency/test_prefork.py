"""Producers in the children of a server that forks, as web servers with a preloaded application do."""

from __future__ import annotations

import pytest

from django_jobs.models import IdempotencyKey, Job
from tests.crowd import programs
from tests.databases import Server

CHILDREN, JOBS = 4, 200


@pytest.mark.django_db(transaction=True)
def test_r60_forked_producers_share_nothing(server: Server, database_url: str) -> None:
    """R60: the parent used the database and closed it: each child has a connection and ids of its own, and no error."""
    (output,) = programs("tests.concurrency.programs.prefork", [[str(CHILDREN), str(JOBS)]], database_url)

    lines = [tuple(map(int, line.split())) for line in output.splitlines()]
    assert len({process for process, _, _ in lines}) == CHILDREN
    assert [counts for _, *counts in lines] == [[JOBS, JOBS // 2 + 1]] * CHILDREN
    assert Job.objects.count() == IdempotencyKey.objects.count() == CHILDREN * JOBS + 1
