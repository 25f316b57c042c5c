"""Pruning of requests to replay many: they go when they ended long ago, with their items, and never while one is under way."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_jobs import clock
from django_jobs.domain.identity import fingerprint
from django_jobs.domain.ids import uuid7
from django_jobs.models import OperatorAction, PrunedStretch, ReplayItem, ReplayRequest
from django_jobs.operate.prune import prune
from django_jobs.operate.verify import verify
from tests.factories_decisions import OperatorActionFactory, ReplayRequestFactory
from tests.integration.operate.stories import later


def asked(items: int, **traits: Any) -> ReplayRequest:
    """A request that has dealt with so many jobs."""
    row: ReplayRequest = ReplayRequestFactory(**traits)
    for _ in range(items):
        ReplayItem.objects.create(request=row, job_id=uuid7(), outcome="queued", created_at=clock.now())
    return row


@pytest.mark.django_db
def test_ended_requests_go_with_their_items_and_leave_a_record() -> None:
    """After KEEP_ROWS, in batches smaller than their items; the audit of who asked for them stays."""
    ended = [asked(5, **{state: True}) for state in ("done", "stopped", "cancelled")]
    digest = fingerprint("{}")
    OperatorActionFactory(action="replay_many", request_id=ended[0].pk, given_digest=digest, plan_digest=digest)

    with later(days=399):
        assert prune(using="default").replays == 0
    with later(days=401):
        assert prune(using="default", dry_run=True).replays == 3
        assert (ReplayRequest.objects.count(), ReplayItem.objects.count()) == (3, 15)
        assert prune(using="default", batch=2).replays == 3

    assert (ReplayRequest.objects.count(), ReplayItem.objects.count()) == (0, 0)
    assert sorted(PrunedStretch.objects.values_list("kind", "rows")) == [("replays", 1), ("replays", 2)]
    assert OperatorAction.objects.get().request_id == ended[0].pk
    assert verify(using="default").violated == ()


@pytest.mark.django_db
def test_requests_under_way_stay_however_old() -> None:
    """Who waits for a worker, or is being carried out, keeps its row and the items by which nothing is done twice."""
    for traits in ({}, {"running": True}):
        asked(2, **traits)

    with later(days=4000):
        assert prune(using="default").replays == 0

    assert (ReplayRequest.objects.count(), ReplayItem.objects.count()) == (2, 4)


@pytest.mark.django_db
def test_time_counts_from_the_end_of_a_request() -> None:
    """A request that took a year is kept for its time after that, and so are its items."""
    row = asked(1, done=True)
    ReplayRequest.objects.filter(pk=row.pk).update(finished_at=clock.now() + timedelta(days=365))

    with later(days=500):
        assert prune(using="default").replays == 0
    assert ReplayItem.objects.count() == 1
    with later(days=770):
        assert prune(using="default").replays == 1
