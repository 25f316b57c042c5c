"""Real workers whose coroutines share the event loop of one process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from django.db import connection

from django_jobs.models import Attempt, Job, Worker
from django_jobs.operate.verify import verify
from tests.acceptance.conftest import MakeWorker, outcomes, wait_until_done
from tests.acceptance.coroutine_handlers import copied, endless, met, ticking, waiting
from tests.acceptance.workers import Witness, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Rows = Callable[[], Counter[int]]
LOADED = {"JOBS_IMPORTS": "tests.acceptance.handlers,tests.acceptance.coroutine_handlers"}
MANY = 40


def test_forty_wait_in_a_process_of_one_thread(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """All are there at once; while they wait they hold no session of the server, and each commits its own row."""
    for n in range(MANY):
        met.enqueue(n=n, many=MANY)
    make_worker(threads=1, arguments=("--coroutines", str(MANY)), env=LOADED).start()

    wait_until_done(seconds=90)

    assert outcomes() == {"succeeded": MANY}
    assert rows() == dict.fromkeys(range(MANY), 1)
    assert len({line["pid"] for line in witness.lines()}) == 1
    if connection.vendor == "postgresql":
        assert min(line["sessions"] for line in witness.lines("met")) < MANY / 2
    assert [worker.slots for worker in Worker.objects.all()] == [MANY + 1]
    assert not verify(using="default").violated


def test_coroutines_of_a_killed_process_run_again(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """All that waited in it are lost with it and found again: each row is there once."""
    for n in range(10):
        waiting.enqueue(n=n, seconds=2.0)
    worker = make_worker(threads=1, arguments=("--coroutines", "10"), env=LOADED).start()
    wait_for(lambda: len(witness.lines("start")) == 10, seconds=60)

    worker.kill_child()
    wait_until_done(seconds=120)

    assert rows() == dict.fromkeys(range(10), 1)
    assert Counter(Attempt.objects.values_list("outcome", flat=True)) == {"lost": 10, "succeeded": 10}
    assert not verify(using="default").violated


def test_copy_that_a_coroutine_makes_runs_nothing_of_others(make_worker: MakeWorker, witness: Witness) -> None:
    """Where the copy would go back to the loop, it ends; each turn of a neighbour is taken once."""
    ticking.enqueue(n=1, ticks=3000)
    ticking.enqueue(n=2, ticks=3000)
    copied.enqueue(n=3)
    make_worker(threads=3, env=LOADED).start()

    wait_until_done(seconds=60)

    assert set(Job.objects.values_list("state", flat=True)) == {"succeeded"}
    assert [line["code"] for line in witness.lines("copy ended")] == [70]
    assert witness.lines("awaited in a copy") == []
    ticks = Counter((line["n"], line["tick"]) for line in witness.lines("tick"))
    assert set(ticks.values()) == {1}
    assert len(ticks) == 6000


def test_coroutine_past_its_lease_costs_no_process(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """It is cancelled where it awaits; its neighbour on the loop goes on in the same process."""
    endless.enqueue(n=1)
    waiting.enqueue(n=2, seconds=6.0)
    make_worker(threads=2, env=LOADED).start()

    wait_until_done(seconds=60)

    assert Counter(Job.objects.values_list("state", flat=True)) == {"succeeded": 1, "dead_lettered": 1}
    assert "past its lease" in Attempt.objects.get(outcome="failed").message
    assert rows() == {2: 1}
    assert len({line["pid"] for line in witness.lines("start")}) == 1
