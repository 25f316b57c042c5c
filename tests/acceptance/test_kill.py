"""kill -9: nothing is lost, nothing stays stuck, rows and successes stay together."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable

import pytest

from django_jobs.models import Attempt, Job
from tests.acceptance.conftest import MakeWorker, outcomes, states, wait_until_done
from tests.acceptance.handlers import row, work
from tests.acceptance.recovery import Kill, figures, kill_in_handler, recoveries
from tests.acceptance.workers import DEFAULTS, QUICK, Witness, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

Rows = Callable[[], Counter[int]]
SEED = 20261129


def kill_children(make_worker: MakeWorker, witness: Witness, *, kills: int, times: dict[str, str]) -> list[Kill]:
    """Run one worker until all jobs are done and kill its child so many times on the way."""
    rng = random.Random(SEED)
    worker = make_worker(times=times).start()
    done: list[Kill] = []
    for _ in range(kills):
        done.append(kill_in_handler(worker, witness, rng))
        # The next kill comes when these are done: a job that dies whenever it runs is convicted, and rightly.
        wait_for(lambda: done[-1].jobs <= {line["job"] for line in witness.lines("end")}, what="recovery")
    wait_until_done(seconds=120)
    worker.term()
    assert worker.wait(seconds=20) == 0
    return done


def assert_all_once(rows: Rows, count: int) -> None:
    """Each job succeeded and its row is there once; nothing is stuck."""
    assert states() == {"succeeded": count}
    assert rows() == Counter(dict.fromkeys(range(count), 1))
    assert not Attempt.objects.filter(outcome=None).exists()


def test_killed_children_lose_and_double_nothing(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """Two kills of a child inside handlers: every job succeeds once, each loss is an attempt, the next comes soon."""
    for n in range(0, 24, 2):
        row.enqueue(n=n, seconds=0.08)
        work.enqueue(n=n + 1, seconds=0.08)

    kills = kill_children(make_worker, witness, kills=2, times=QUICK)

    assert_all_once(rows, 24)
    found = recoveries(kills, witness)
    assert found, "a kill hit a handler"
    assert statistics.median(found) <= 6, figures("one child", found)
    lost = Attempt.objects.filter(outcome="lost")
    assert lost.count() >= 2
    assert set(lost.values_list("loss_cause", "exit_status")) == {("exit", -9)}


@pytest.mark.slow
@pytest.mark.parametrize("handler", [row, work], ids=["atomic", "context"])
def test_f02_ten_kills_in_200_jobs_at_default_times(
    make_worker: MakeWorker, witness: Witness, rows: Rows, handler: object, vendor: str
) -> None:
    """200 jobs, ten kills of the child: 0 lost, 0 stuck, 200 rows; median recovery at most 2 s."""
    handler.enqueue_many([{"n": n, "seconds": 0.1} for n in range(200)])  # type: ignore[attr-defined]

    kills = kill_children(make_worker, witness, kills=10, times=DEFAULTS)

    assert_all_once(rows, 200)
    found = recoveries(kills, witness)
    print(f"\n{vendor}, {figures('one child killed', found)}")
    assert len(found) >= 7, "most kills hit a handler, some the moment between its last word and its commit"
    assert statistics.median(found) <= 2.0


def run_group_kill(make_worker: MakeWorker, witness: Witness, *, times: dict[str, str], again: bool) -> list[float]:
    """Kill a whole worker inside handlers while another one lives, or start it again at once; return recoveries."""
    victim = make_worker(times=times).start()
    victim.wait_ready()
    if not again:
        make_worker(times=times).start().wait_ready()
    work.enqueue_many([{"n": n, "seconds": 0.5} for n in range(12)])
    kill = kill_in_handler(victim, witness, random.Random(SEED), group=True)
    if again:
        make_worker(times=times).start()
    wait_until_done(seconds=60)
    return recoveries([kill], witness)


@pytest.mark.slow
def test_killed_group_is_rescued_by_any_other_worker_r16(
    make_worker: MakeWorker, witness: Witness, rows: Rows, vendor: str
) -> None:
    """A whole worker dies: another one, or the same started again, runs what it held, with nothing to set up."""
    found = run_group_kill(make_worker, witness, times=QUICK, again=vendor == "sqlite")

    assert_all_once(rows, 12)
    assert found
    assert max(found) <= 12, figures("group", found)
    assert set(Attempt.objects.filter(outcome="lost").values_list("loss_cause", flat=True)) == {"silent"}


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True], ids=["another-lives", "started-again"])
def test_killed_group_is_back_within_30_seconds_by_default_r16(
    make_worker: MakeWorker, witness: Witness, rows: Rows, again: bool, vendor: str
) -> None:
    """At default times the jobs of a dead worker start again within 30 s, whether another lives or it is restarted."""
    found = run_group_kill(make_worker, witness, times=DEFAULTS, again=again)

    print(f"\n{vendor}, {figures('group killed, ' + ('started again' if again else 'another alive'), found)}")
    assert_all_once(rows, 12)
    assert found
    assert max(found) <= 30


def test_death_in_the_first_moment_is_counted_r33(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """A kill in the first moment of the handler finds the attempt recorded already, and it counts on the job."""
    job_id = work.enqueue(n=0, seconds=1.0).id
    worker = make_worker(threads=1).start()

    start = wait_for(lambda: witness.lines("start"), what="the first start")[0]
    worker.kill_child(start["pid"])

    found = wait_for(lambda: Attempt.objects.filter(job_id=job_id, outcome="lost").first(), what="the loss")
    assert found.number == 1
    wait_until_done(seconds=20)
    assert outcomes() == {"lost": 1, "succeeded": 1}
    assert Job.objects.get(pk=job_id).lost_count == 0, "a success clears the losses"
