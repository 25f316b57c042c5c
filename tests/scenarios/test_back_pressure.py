"""F19 and F20: a queue that is full, and a provider that asks for patience."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest
from django.db import transaction
from django.test import override_settings

from django_jobs import JobContext, RetryPolicy, clock
from django_jobs.domain.effects import Dedupe, Guarantees
from django_jobs.effects.adapters.http import HttpJson
from django_jobs.enqueue import backpressure
from django_jobs.exceptions import QueueFullError
from django_jobs.models import Attempt, Job, Send
from tests.crowd import together
from tests.databases import Server
from tests.declared import plain
from tests.factories import JobFactory
from tests.integration.effects.factories import MovableClock, movable_clock
from tests.integration.worker.conftest import Declare, claimer, declare, run, take, the_job

__all__ = ["declare"]

pytestmark = pytest.mark.django_db(transaction=True)

CAPACITY, PRODUCERS = 10, 20
DAY = timedelta(days=1)
TIMES = 5


@pytest.fixture
def time(transactional_db: None) -> Iterator[MovableClock]:
    """The clock of all statements, which stands until the test moves it."""
    with movable_clock() as source:
        yield source


@pytest.fixture
def bounded(time: MovableClock) -> Iterator[None]:
    """Ten jobs may wait in the default queue."""
    with override_settings(DJANGO_JOBS={"QUEUES": {"default": {"capacity": CAPACITY}}}):
        yield


def test_f19_concurrent_producers_pass_the_limit_by_their_number_at_most(
    server: Server, bounded: None, time: MovableClock
) -> None:
    """Twenty that looked at the same moment store one job each; from the next look on all hear when to come back."""
    JobFactory.create_batch(CAPACITY - 1)
    backpressure._samples.depth("default", limit=CAPACITY + 1, using="default")  # all see the same look

    first = together(*[plain.enqueue] * PRODUCERS)
    time.advance(seconds=1)
    with pytest.raises(QueueFullError):  # who looks; what others store while it does is in its own look, a second later
        plain.enqueue()
    second = together(*[plain.enqueue] * PRODUCERS)

    assert not [result for result in first if isinstance(result, Exception)]
    assert Job.objects.count() == CAPACITY - 1 + PRODUCERS
    assert [type(result) for result in second] == [QueueFullError] * PRODUCERS
    assert all(error.retry_after >= timedelta(seconds=1) for error in second)


def test_f19_business_transaction_decides_what_a_refusal_means(server: Server, bounded: None) -> None:
    """A full queue leaves the caller's transaction whole: it may commit without the job, or give everything up."""
    JobFactory.create_batch(CAPACITY)
    with transaction.atomic():
        kept = JobFactory(queue_name="mail")
        with pytest.raises(QueueFullError):
            plain.enqueue()
    with pytest.raises(QueueFullError), transaction.atomic():  # noqa: PT012  what is rolled back is the point
        JobFactory(queue_name="mail")
        plain.enqueue()

    assert list(Job.objects.filter(queue_name="mail").values_list("pk", flat=True)) == [kept.pk]


def asks_for(wish: str, then: list[int]) -> Callable[..., None]:
    """Return a handler whose provider answers 429 with this Retry-After, and 201 after ``then`` is empty."""

    def answer(request: httpx.Request) -> httpx.Response:
        if then:
            return httpx.Response(then.pop(), headers={"Retry-After": wish} if wish else {})
        return httpx.Response(201, json={"id": "x_1"})

    operation = HttpJson(
        "scenarios.crm",
        "POST",
        "http://crm.test/contacts",
        guarantees=Guarantees(dedupe=Dedupe.KEY, key_lifetime=timedelta(days=30)),
        transport=httpx.MockTransport(answer),
    )

    def handler(context: JobContext) -> None:
        context.effect("create", operation, email="ada@example.com")

    return handler


@pytest.mark.parametrize(
    ("wish", "least", "most"),
    [
        ("120", timedelta(seconds=120), timedelta(seconds=121)),
        ("date", timedelta(seconds=300), timedelta(seconds=301)),
        ("-1", timedelta(0), timedelta(seconds=2)),
        ("1e9", timedelta(0), timedelta(seconds=2)),
        ("1000000000", DAY - timedelta(seconds=1), DAY),
        ("as soon as you like", timedelta(0), timedelta(seconds=2)),
        ("", timedelta(0), timedelta(seconds=2)),
    ],
    ids=["seconds", "date", "negative", "float", "a-billion", "text", "none"],
)
def test_f20_wish_of_a_busy_provider_is_waited_for_within_reason(
    time: MovableClock,
    declare: Declare,
    wish: str,
    least: timedelta,
    most: timedelta,
) -> None:
    """429: the job waits as long as was asked, at most to its greatest age; nonsense means its own backoff."""
    header = format_datetime(time.now + least, usegmt=True) if wish == "date" else wish
    policy = RetryPolicy(base=timedelta(seconds=1), cap=timedelta(seconds=1), transient_max_age=DAY)
    declare(asks_for(header, [429]), takes_context=True, retry=policy).enqueue()

    run(take())

    job = the_job()
    assert job.state in {"failed", "queued"}
    assert least <= job.available_at - time.now <= most
    assert (job.unknown_count, job.lost_count, job.transient_count) == (0, 0, 1), "no budget of errors is charged"
    assert claimer().take(1, 0) == [] or least == timedelta(0)


def test_f20_patience_asked_for_again_and_again_ends_in_success(time: MovableClock, declare: Declare) -> None:
    """A provider that answers 429 five times: each wait is what it asked, and nothing is charged but time."""
    answers = [429] * TIMES
    policy = RetryPolicy(unknown_attempts=1, base=timedelta(seconds=1), cap=timedelta(seconds=1))
    declare(asks_for("60", answers), takes_context=True, retry=policy).enqueue()
    began = time.now

    while answers:
        run(take())
        time.now = the_job().available_at
        claimer().take(0, 0)
    run(take())

    job = the_job()
    assert (job.state, job.unknown_count) == ("succeeded", 0)
    assert time.now - began >= timedelta(seconds=60 * TIMES)
    assert Attempt.objects.count() == TIMES + 1
    assert Send.objects.values("epoch", "provider_key").distinct().count() == 1, "one key throughout"


def test_f20_wish_beyond_the_greatest_age_leaves_one_last_try(time: MovableClock, declare: Declare) -> None:
    """Ten years were asked for: the last try is at the job's greatest age, and after it the job is a dead letter by age."""
    policy = RetryPolicy(base=timedelta(seconds=1), cap=timedelta(seconds=1), transient_max_age=DAY)
    declare(asks_for("315360000", [429, 429]), takes_context=True, retry=policy).enqueue()
    began = time.now
    run(take())
    due: Any = the_job().available_at
    assert due - began == DAY

    time.now = due
    run(take())

    assert (the_job().state, the_job().dead_reason) == ("dead_lettered", "age")
    assert clock.now() == due
