"""Lists of jobs: each filter, pages by id, and losses told as what they are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_jobs import clock
from django_jobs.models import Job
from django_jobs.operate.listing import Filters, list_jobs, parse_since
from django_jobs.operate.wording import LOSS
from tests.integration.operate.stories import Story

pytestmark = pytest.mark.django_db


def listed(**filters: Any) -> list[Any]:
    """Return the ids of a page."""
    return [item.job.pk for item in list_jobs(Filters(**filters), using="default").jobs]


@pytest.mark.parametrize(
    ("make", "filters"),
    [
        (lambda: Story(state="scheduled"), {"states": ["scheduled", "cancelled"]}),
        (lambda: Story(job_type="shop.note_order"), {"job_types": ["shop.note_order"]}),
        (lambda: Story(queue_name="mail"), {"queues": ["mail"]}),
        (lambda: Story(subject="order:7"), {"subject": "order:7"}),
        (lambda: Story(key="order:7"), {"key": "order:7"}),
        (lambda: Story().claim().lose().claim(alone="child").succeed(), {"lost": True}),
        (lambda: Story().claim().fail(dead="unknown_budget"), {"dead": True}),
        (lambda: Story(ago=timedelta(minutes=1)), {"since": "5m"}),
    ],
    ids=["state", "type", "queue", "subject", "key", "lost", "dead", "since"],
)
def test_filter_leaves_only_what_matches(make: Callable[[], Story], filters: dict[str, Any]) -> None:
    """Each filter lets its jobs through and no others."""
    Story(key="order:8", subject="order:8").claim().fail()
    Story().claim().fail(dead="permanent", error_class="permanent").discard()
    expected = make().job.pk
    if "since" in filters:
        filters = {"since": parse_since(filters["since"], using="default")}

    assert listed(**filters) == [expected]


def test_filters_hold_together() -> None:
    """Two filters are both asked."""
    Story(queue_name="mail")
    Story(queue_name="mail", subject="order:7").claim()
    wanted = Story(queue_name="mail", subject="order:7")

    assert listed(queues=["mail"], subject="order:7", states=["queued"]) == [wanted.job.pk]


def test_pages_are_cut_by_id() -> None:
    """Jobs come newest first; the next page begins below the last id, and the last page says so."""
    ids = [Story().job.pk for _ in range(5)][::-1]

    first = list_jobs(Filters(limit=2), using="default")
    second = list_jobs(Filters(limit=2, before=first.jobs[-1].job.pk), using="default")
    third = list_jobs(Filters(limit=2, before=second.jobs[-1].job.pk), using="default")

    assert [item.job.pk for page in (first, second, third) for item in page.jobs] == ids
    assert [first.more, second.more, third.more] == [True, True, False]


def test_loss_is_told_as_what_it_is() -> None:
    """A job with a loss says how many and that nobody saw their end; others say nothing."""
    Story().claim().succeed()
    Story().claim().lose().claim(alone="child").lose().claim(alone="child")

    lost, calm = list_jobs(Filters(), using="default").jobs

    assert (lost.losses, lost.loss, lost.last_outcome) == (2, LOSS, "running")
    assert (calm.losses, calm.loss, calm.last_outcome) == (0, "", "succeeded")


def test_page_costs_three_queries() -> None:
    """However many jobs a page has, it costs the same."""
    for _ in range(7):
        Story(key=f"order:{Job.objects.count()}").claim().succeed()

    with CaptureQueriesContext(connection) as queries:
        page = list_jobs(Filters(), using="default")

    assert len(page.jobs) == 7
    assert len(queries) == 3


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-29", datetime(2026, 11, 29, tzinfo=UTC)),
        ("2026-11-29T18:00", datetime(2026, 11, 29, 18, tzinfo=UTC)),
        ("2026-11-29T18:00:00+02:00", datetime(2026, 11, 29, 16, tzinfo=UTC)),
    ],
)
def test_since_reads_an_instant(text: str, moment: datetime) -> None:
    """An instant without a zone is UTC."""
    assert parse_since(text, using="default") == moment


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90s", timedelta(seconds=90)),
        ("30m", timedelta(minutes=30)),
        ("12h", timedelta(hours=12)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
    ],
)
def test_since_reads_a_span_back_from_now(text: str, span: timedelta) -> None:
    """A span counts back from the database's present."""
    now = datetime(2026, 11, 29, 12, tzinfo=UTC)
    with clock.override(lambda: now):
        assert parse_since(text, using="default") == now - span


@pytest.mark.parametrize("text", ["yesterday", "7", "d", "999999w", "2026-13-01", ""])
def test_since_refuses_the_rest(text: str) -> None:
    """What is neither is refused with an example."""
    with pytest.raises(ValueError, match="is no time; give an instant such as"):
        parse_since(text, using="default")
