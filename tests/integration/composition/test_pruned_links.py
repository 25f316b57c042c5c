"""A chain tells how the jobs of its links ended, also of those whose rows are gone, and says so where nothing tells."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from django_jobs import ChainResult, batch, chain
from django_jobs.domain.states import Pruning
from django_jobs.exceptions import PermanentError
from django_jobs.models import Batch, Job
from django_jobs.operate.cancel import Cancel
from django_jobs.operate.discard import Discard
from django_jobs.operate.prune import limits_now
from django_jobs.store.prune import START, look, take
from django_jobs.testing import JobsKit
from tests.factories_decisions import decided
from tests.factories_pages import person
from tests.integration.composition.conftest import Declare
from tests.integration.composition.test_operating import said

LONG = timedelta(days=1000)  # a key that outlives its job's rows
End = Callable[[JobsKit, uuid.UUID], None]


def fragile(n: int) -> None:
    """Fail where the number is negative."""
    if n < 0:
        raise PermanentError("no")


def after() -> None:
    """Follow."""


def succeed(jobs: JobsKit, job_id: uuid.UUID) -> None:
    """Let a job succeed."""
    jobs.run_until_idle()


def cancel(jobs: JobsKit, job_id: uuid.UUID) -> None:
    """Cancel a job that has not begun."""
    decided(Cancel(job_id, using="default"))


def discard(jobs: JobsKit, job_id: uuid.UUID) -> None:
    """Let a job become a dead letter, and settle it."""
    jobs.run_until_idle()
    decided(Discard(job_id, using="default"))


# How a job ends, its argument, how its link stands then, and how the chain stands whose last link it is.
ENDS = [
    pytest.param(succeed, 1, ("succeeded", None), "succeeded", id="succeeded"),
    pytest.param(cancel, 1, ("cancelled", None), "ended", id="cancelled"),
    pytest.param(discard, -1, ("dead_lettered", "discarded"), "ended", id="discarded"),
]


def prune_rows(jobs: JobsKit, job_id: uuid.UUID) -> None:
    """Take the rows of one job as ``jobs prune`` does, a year and more later; its chain and its batch stay."""
    jobs.clock.tick(timedelta(days=500))
    limits = limits_now(using="default")
    window = look(Pruning.JOBS, limits, after=START, limit=100, using="default")
    assert window is not None
    assert take(window, limits, only=[job_id], limit=100, using="default") == 1
    assert not Job.objects.filter(pk=job_id).exists()


def told(made: ChainResult) -> tuple[str, tuple[str, str | None], bool]:
    """Return how a chain and its first link stand, as the API says."""
    found = made.refresh()
    return found.state, (found.links[0].state, found.links[0].resolution), found.links[0].is_pruned


@pytest.mark.parametrize(("end", "n", "link", "state"), ENDS)
def test_last_link_is_told_as_long_as_its_key_is_there(
    jobs: JobsKit, declare: Declare, end: End, n: int, link: tuple[str, str | None], state: str
) -> None:
    """Pruning keeps with a living key how its job ended, and the chain says the same before and after."""
    made = chain(declare(fragile, key_ttl=LONG).prepare(n)).enqueue()
    job_id = made.links[0].job_id
    assert job_id is not None
    end(jobs, job_id)
    assert told(made) == (state, link, False)

    prune_rows(jobs, job_id)

    assert told(made) == (state, link, True)


@pytest.mark.parametrize(("end", "n", "link", "state"), ENDS)
def test_last_link_without_a_key_is_said_to_be_pruned(
    jobs: JobsKit, declare: Declare, end: End, n: int, link: object, state: str
) -> None:
    """Where nothing tells any more how the last link ended, neither it nor the chain is said to have succeeded."""
    made = chain(declare(fragile).prepare(n)).enqueue()
    job_id = made.links[0].job_id
    assert job_id is not None
    end(jobs, job_id)

    prune_rows(jobs, job_id)

    assert told(made) == ("pruned", ("pruned", None), True)


@pytest.mark.parametrize(
    ("end", "n", "link", "state"),
    [
        pytest.param(succeed, 1, "succeeded", "succeeded", id="succeeded"),
        pytest.param(cancel, 1, "pruned", "ended", id="cancelled"),
        pytest.param(discard, -1, "pruned", "ended", id="discarded"),
    ],
)
def test_earlier_link_is_judged_by_what_followed(
    jobs: JobsKit, declare: Declare, end: End, n: int, link: str, state: str
) -> None:
    """Only a success enqueues the next link: if it was enqueued the pruned one succeeded, else the chain has ended."""
    made = chain(declare(fragile).prepare(n), declare(after).prepare()).enqueue()
    job_id = made.links[0].job_id
    assert job_id is not None
    end(jobs, job_id)

    prune_rows(jobs, job_id)

    assert told(made) == (state, (link, None), True)


def page(made: ChainResult) -> str:
    """Return the page of a chain in the admin."""
    client = Client()
    client.force_login(person(is_staff=True, is_superuser=True))
    return client.get(reverse("admin:django_jobs_chain_change", args=[made.id])).content.decode()


@pytest.mark.parametrize(
    ("ttl", "state", "chains"), [(LONG, "cancelled", "ended"), (timedelta(days=1), "pruned", "pruned")]
)
def test_command_and_page_say_that_rows_are_pruned(
    jobs: JobsKit, declare: Declare, ttl: timedelta, state: str, chains: str
) -> None:
    """Both show the state that is known, say that the rows are gone, and lead to no page of a job that is not there."""
    made = chain(declare(fragile, key_ttl=ttl).prepare(1)).enqueue()
    job_id = made.links[0].job_id
    assert job_id is not None
    cancel(jobs, job_id)
    prune_rows(jobs, job_id)
    shown, text = page(made), said("chains", str(made.id))

    assert f"Chain {made.id}: {chains}." in text
    assert f"{state} (rows pruned)" in text
    link: dict[str, Any] = json.loads(said("chains", str(made.id), "--json"))["links"][0]
    assert (link["state"], link["is_pruned"]) == (state, True)
    assert "its rows are pruned" in shown
    assert f"dj-jobs-state-{state}" in shown
    assert f"dj-jobs-state-{chains}" in shown
    assert str(job_id) not in shown


@pytest.mark.parametrize("end", [succeed, cancel])
def test_closed_batch_goes_on_telling_what_it_counted(jobs: JobsKit, declare: Declare, end: End) -> None:
    """The counts are those of the closing, whatever is pruned later."""
    made = batch.enqueue([declare(fragile).prepare(1)])
    job_id = Job.objects.get(batch_id=made.id).pk
    end(jobs, job_id)
    jobs.run_until_idle()
    before = made.refresh()
    prune_rows(jobs, job_id)

    assert (before.is_closed, before.total) == (True, 1)
    assert made.refresh() == before
    assert Batch.objects.filter(pk=made.id).exists()
