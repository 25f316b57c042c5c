"""A request to cancel that nobody has heard yet: the next attempt begins nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from django_jobs.models import CancelRequest, Job
from django_jobs.operate.cancel import Cancel
from django_jobs.store import endings
from django_jobs.worker.execute import execute
from tests.factories_decisions import decided
from tests.integration.compensation import trips
from tests.integration.worker.conftest import claimer
from tests.scenes import BUDGET, failure

pytestmark = pytest.mark.django_db(transaction=True)


def test_attempt_between_an_end_and_the_look_for_requests_sends_nothing(
    agency: trips.Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt fails, another worker claims before the request is heeded, and books no hotel all the same."""
    trips.book.enqueue(city="Oslo", steps=["hotel"], dies=False)
    (first,) = claimer().take(1, 0)
    decided(Cancel(first.job_id, using="default"))
    heed: Callable[..., object] = endings.heed_request
    numbers: list[int] = []

    def late(job_id: object, *, using: str) -> object:
        for attempt in claimer().take(1, 0):
            numbers.append(attempt.number)
            execute(attempt)
        return heed(job_id, using=using)

    monkeypatch.setattr(endings, "heed_request", late)
    endings.fail(first, failure=failure(), delay=timedelta(0), budget=BUDGET)

    assert numbers == [2], "the gap was used"
    assert agency.applied == []
    assert (Job.objects.get().state, CancelRequest.objects.count()) == ("cancelled", 1)
