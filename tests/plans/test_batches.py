"""With a million rows in the table and batches of ten thousand, each look at a batch reads little."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from django.db import connection
from pytest_django import DjangoDbBlocker

from django_jobs import clock
from django_jobs.domain.ids import uuid7
from django_jobs.models import Batch
from django_jobs.store.batches import standing, unfinished
from tests.databases import Server
from tests.plans import backlog
from tests.plans.backlog import add, settled
from tests.plans.explaining import Run, asked, ran

pytestmark = [pytest.mark.postgres, pytest.mark.long, pytest.mark.timeout(900)]

MILLION = 1_000_000
MEMBERS = 10_000


@pytest.fixture(scope="module")
def million(server: Server, django_db_blocker: DjangoDbBlocker) -> Iterator[uuid.UUID]:
    """A million finished jobs, a batch of 10,000 of which one waits, and 300 batches with one open member each."""
    with django_db_blocker.unblock():
        server.empty(anew=True)
        add(MILLION, **backlog.DONE)
        ids = [uuid7() for _ in range(301)]
        Batch.objects.bulk_create(Batch(id=pk, on_dead="block", created_at=clock.now()) for pk in ids)
        add(MEMBERS - 1, **backlog.DONE, batch_id=f"'{ids[0]}'::uuid")
        for pk in ids:
            add(1, batch_id=f"'{pk}'::uuid")
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE django_jobs_batch")
        settled()
        yield ids[0]
        server.empty(anew=True)


def shown(label: str, run: Run) -> Run:
    """Print what a statement cost."""
    print(f"\n{label}: {run.buffers} pages, {run.milliseconds:.2f} ms")
    return run


@pytest.mark.django_db
def test_look_after_a_members_end_reads_a_few_pages(million: uuid.UUID) -> None:
    """Whether a member is unfinished is one look into the index, however many have ended."""
    (run,) = asked(lambda: unfinished(million, using="default"))
    shown("is one unfinished", run)
    assert (run.indexes, run.buffers < 12) == ({"job_batch"}, True)


@pytest.mark.django_db
def test_counting_reads_the_members_alone(million: uuid.UUID) -> None:
    """The counts are made of the members' rows, not of the table."""
    (run,) = asked(lambda: standing(million, using="default"))
    shown("counts of 10,000 members", run)
    assert run.indexes == {"job_batch"}
    assert not run.whole_tables


@pytest.mark.django_db
def test_maintenance_reads_little_per_open_batch(million: uuid.UUID) -> None:
    """The look every five seconds asks once per open batch."""
    run = shown("look at 301 open batches", ran("queries/batches_to_close", {"before": None, "limit": 100}, times=3))
    assert "job_batch" in run.indexes
    assert not run.whole_tables
    assert run.buffers < 301 * 8
