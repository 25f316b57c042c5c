"""Many settle and claim at once: never two of a serial key run, and each key keeps its order."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from django_jobs import store
from django_jobs.domain.states import DeadReason
from django_jobs.models import Attempt, Job, SerialTurn
from django_jobs.store import statements
from django_jobs.store.claims import Place, before_all
from django_jobs.store.turns import arrived, settle_turns, stale
from tests.concurrency.test_completion_races import _wait_for_a_waiter
from tests.crowd import meanwhile, together
from tests.databases import Server
from tests.scenes import BUDGET, QUEUE, failure, new_job, request

pytestmark = pytest.mark.django_db(transaction=True)

KEYS = 5


def test_r19_crowd_keeps_every_key_serial_and_in_order(server: Server) -> None:
    """R19: eight workers in one process and a producer, five keys: no error, no two at once, the order of enqueueing."""
    many = 200 if server.vendor == "postgresql" else 40
    running: dict[str, int] = defaultdict(int)
    order: dict[str, list[Any]] = defaultdict(list)
    wanted: dict[str, list[Any]] = defaultdict(list)
    seen, produced = threading.Lock(), threading.Event()
    most = [0]

    def produce() -> None:
        try:
            for number in range(many):
                new = new_job(serial_key=f"account:{number % KEYS}")
                store.enqueue(new, using="default")
                wanted[new.serial_key].append(new.job_id)
        finally:
            produced.set()

    def work() -> None:
        while not produced.is_set() or Job.objects.filter(state__in=["queued", "running"]).exists():
            settle_turns([*arrived([QUEUE], using="default"), *stale(using="default")], using="default")
            for job in store.claim(request(3), using="default"):
                with seen:
                    running[job.serial_key] += 1
                    most[0] = max(most[0], running[job.serial_key])
                    order[job.serial_key].append(job.job_id)
                with seen:
                    running[job.serial_key] -= 1
                store.succeed(job, result=None, budget=BUDGET)
                settle_turns([job.serial_key], using="default")

    errors = [error for error in together(produce, *[work] * 8) if error is not None]

    assert errors == []
    assert most == [1]
    assert order == wanted
    assert Attempt.objects.filter(outcome="succeeded").count() == Attempt.objects.count() == many
    settle_turns(stale(using="default"), using="default")
    assert not SerialTurn.objects.exists()


def test_two_who_settle_one_key_give_one_turn(server: Server) -> None:
    """At one moment, many times: whoever comes second finds it given, or leaves it to the first."""
    for number in range(20):
        key = f"account:{number}"
        store.enqueue_many([new_job(serial_key=key) for _ in range(4)], using="default")
        given = together(*[lambda key=key: settle_turns([key], using="default")] * 4)
        assert [error for error in given if isinstance(error, Exception)] == []
        settle_turns([key], using="default")
        lanes = sorted(Job.objects.filter(serial_key=key).values_list("lane", flat=True))
        assert lanes == ["", "~~", "~~", "~~"]


@pytest.mark.postgres
def test_row_that_a_project_holds_stops_nobody(server: Server) -> None:
    """A transaction of the project that has cancelled one waiting job holds up nobody who settles, and meets no deadlock."""
    news = [new_job(serial_key="account:1") for _ in range(3)]
    store.enqueue_many([*news, new_job(serial_key="account:2")], using="default")

    def settle() -> None:
        settle_turns(arrived([QUEUE], using="default"), using="default")

    with transaction.atomic():
        store.cancel(news[2].job_id, using="default")
        assert together(*[settle] * 3) == [None] * 3
        store.cancel(news[1].job_id, using="default")
    settle()
    assert sorted(Job.objects.filter(state="queued").values_list("serial_key", "lane")) == [
        ("account:1", ""),
        ("account:2", ""),
    ]


@pytest.mark.postgres
@pytest.mark.parametrize("beyond", [(), (before_all(QUEUE),)], ids=["from the head", "behind a place"])
def test_claim_that_looked_before_the_turn_was_lost_leaves_the_job(
    server: Server, database_url: str, monkeypatch: pytest.MonkeyPatch, beyond: tuple[Place, ...]
) -> None:
    """Between its look and its lock the job became a dead letter, its turn another's, and it was replayed: it waits."""
    news = [new_job(serial_key="account:1", serial_skips=True) for _ in range(2)]
    store.enqueue_many(news, using="default")
    settle_turns(["account:1"], using="default")

    def lose_the_turn(pause: Callable[[], None]) -> None:
        with transaction.atomic():
            (job,) = store.claim(request(1), using="default")
            store.dead_letter(job, failure=failure(), reason=DeadReason.PERMANENT, budget=BUDGET)
            settle_turns(["account:1"], using="default")
            revision = Job.objects.get(pk=job.job_id).revision
            again = {"extra_attempts": 0, "run_after": None, "useful_for": None}
            assert store.replay(job.job_id, revision=revision, using="default", **again)
            pause()

    with meanwhile(lose_the_turn) as finish:
        # A claim that is slow between the two: it waits for the row instead of stepping over it.
        slow = tuple(text.replace("SKIP LOCKED", "") for text in statements.load("postgresql", "claim"))
        real = statements.load
        monkeypatch.setattr(
            statements, "load", lambda vendor, name, *parts: slow if name == "claim" else real(vendor, name, *parts)
        )
        found = together(
            lambda: store.claim(request(1, beyond=beyond), using="default"),
            lambda: (_wait_for_a_waiter(database_url), finish()),
        )

    assert found[0] == []
    assert [Job.objects.get(pk=new.job_id).lane for new in news] == ["~", ""]
