"""The pages that tell how to move here: the code after the move runs, and the bridges double nothing."""

from __future__ import annotations

import ast
import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

from django_jobs import batch_result, chain_result, clock
from django_jobs.models import Job, JobPayload, ScheduleTick
from django_jobs.operate.schedule_runner import announce_schedules, serve
from tests.docs.conftest import Enter, Follow
from tests.docs.moving import NAMES, Shop, listings


def days() -> list[Any]:
    """Return the arguments of all jobs that were enqueued for a day."""
    return [json.loads(text) for text in JobPayload.objects.values_list("arguments", flat=True) if "day" in text]


@pytest.mark.parametrize("name", NAMES)
def test_code_before_the_move_compiles(name: str) -> None:
    """What the reader is shown of the other system is Python; each page has both sides and a way over."""
    found = listings(name)
    kinds = [listing.kind for listing in found]

    for listing in found:
        assert ast.parse(listing.code).body, listing
    assert set(kinds) <= {"before", "after", "bridge", "settings", "transfer"}
    assert kinds.count("after") >= 2
    assert {"bridge", "transfer"} & set(kinds)
    assert "before" in kinds


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", NAMES)
def test_order_is_charged_once_however_often_it_is_enqueued(
    follow: Follow, enter: Enter, shop: Shop, name: str
) -> None:
    """New callers and old messages end in one job, which outlives an outage of the bank."""
    module, bridges = follow(name)
    kit = enter()
    shop.offline = 2
    order = shop.order(7)

    if hasattr(module, "place"):
        module.place(order)
    else:
        module.charge_order.enqueue(order_id=7)
    for _ in range(2):
        if hasattr(bridges, "charge_order"):
            bridges.charge_order(7)
    kit.run_until_idle()

    assert [done for done in shop.done if done[0] == "charge"] == [("charge", 1200)]
    assert list(shop.paid) == [7]
    assert Job.objects.filter(job_type="shop.charge_order").count() == 1
    assert not Job.objects.exclude(state="succeeded").exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_enqueued_by_a_transaction_that_is_rolled_back(follow: Follow, shop: Shop, name: str) -> None:
    """The code after the move needs no hook after the commit."""
    module, bridges = follow(name)

    with transaction.atomic():
        (getattr(module, "place", None) or bridges.signed_up)(shop.order(7))
        assert Job.objects.count() >= 1
        transaction.set_rollback(True)

    assert Job.objects.count() == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["celery", "django-q2", "procrastinate", "rq"])
def test_message_that_comes_twice_is_one_job(follow: Follow, enter: Enter, shop: Shop, name: str) -> None:
    """A redelivered message of the old system makes no second job, with a business id or with the message's own."""
    _, bridges = follow(name)
    kit = enter()

    for _ in range(2):
        if name == "procrastinate":
            bridges.recount([5])
        else:
            bridges.remind(5)
    kit.run_until_idle()

    assert [done[1:] for done in shop.done] == [(5,)]


@pytest.mark.django_db(transaction=True)
def test_delayed_job_waits_and_is_worth_nothing_after_a_day(follow: Follow, enter: Enter, shop: Shop) -> None:
    """The page about Celery delays a reminder by an hour, and lets it expire."""
    module, _ = follow("celery")
    kit = enter()
    module.signed_up(shop.order(5))
    module.signed_up(shop.order(6))

    kit.drain()
    assert shop.done == []
    kit.clock.tick(timedelta(hours=1))
    kit.run_one()
    kit.clock.tick(timedelta(days=2))
    kit.drain()

    assert len(shop.done) == 1
    assert sorted(Job.objects.values_list("state", "priority")) == [("dead_lettered", 3), ("succeeded", 3)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["celery", "django-q2", "rq"])
def test_many_then_one(follow: Follow, enter: Enter, shop: Shop, name: str) -> None:
    """The callback comes once, with how many members have succeeded."""
    module, _ = follow(name)
    kit = enter()

    made = module.load([1, 2, 3]) if name == "django-q2" else module.load(7, [1, 2, 3])
    kit.run_until_idle()

    assert shop.done == [("load", 1), ("load", 2), ("load", 3), ("report", 7, 3)]
    assert batch_result(made.id).is_closed


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["celery", "rq"])
def test_one_after_the_other_with_the_result(follow: Follow, enter: Enter, shop: Shop, name: str) -> None:
    """A chain hands the result of its first job to the second, and the results can be asked for."""
    module, _ = follow(name)
    kit = enter()

    made = module.deliver(7)
    assert module.deliver(7).id == made.id
    kit.run_until_idle()

    assert shop.done == [("reserve", 7), ("ship", 7, "shelf 3")]
    assert chain_result(made.id).state == "succeeded"
    wait = module.wait if name == "celery" else module.place_of
    assert wait(Job.objects.get(job_type="shop.reserve").pk) == "shelf 3"


@pytest.mark.django_db(transaction=True)
def test_rows_are_enqueued_in_one_call(follow: Follow, enter: Enter, shop: Shop) -> None:
    """The page about Procrastinate enqueues a generator of rows."""
    module, _ = follow("procrastinate")
    kit = enter()

    assert [one.outcome for one in module.load([1, 2])] == ["created"] * 2
    kit.run_until_idle()

    assert sorted(shop.done) == [("load", 1), ("load", 2)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", NAMES)
def test_day_that_ticks_in_both_systems_is_one_job(follow: Follow, name: str) -> None:
    """The tick of the new schedule and the bridge of the old one make one job of a day, in either order."""
    now = datetime(2026, 3, 2, 4, 59, 30, tzinfo=UTC)
    module, bridges = follow(name)
    arguments = {"django-q2": ("2026-03-03T05:00:00+00:00",), "procrastinate": (1772514000,)}.get(name, ())

    with clock.override(lambda: now):
        announce_schedules(using="default")
        for day in (2, 3):
            now = datetime(2026, 3, day, 5, 0, 1, tzinfo=UTC)
            serve(using="default")
        if name in {"celery", "rq"}:
            module.daily_report.enqueue(day=now.date())
        elif name == "django-tasks-db":
            module.daily_report.enqueue(day=date(2026, 3, 3))
        else:
            bridges.daily_report(*arguments)

    assert sorted(one["day"] for one in days()) == ["2026-03-02", "2026-03-03"]
    assert [row.outcome for row in ScheduleTick.objects.all()] == ["enqueued"] * 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["celery", "rq"])
def test_bridge_of_a_periodic_task_enqueues_today(follow: Follow, name: str) -> None:
    """Where the old system tells no time, its bridge takes the present day."""
    _, bridges = follow(name)

    for _ in range(2):
        bridges.daily_report()

    assert len(days()) in {1, 2}  # two, if midnight came between
    assert {one["day"] for one in days()} <= {f"{datetime.now(UTC) - timedelta(days=ago):%Y-%m-%d}" for ago in (0, 1)}
