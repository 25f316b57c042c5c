"""A bounded resource under real workers that are killed: never more than its limit, and soon as much again."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import time

import pytest

from django_jobs import store
from django_jobs.domain.identity import fingerprint
from django_jobs.models import Attempt, Job
from tests.acceptance.conftest import MakeWorker
from tests.acceptance.workers import Witness, pass_time, wait_for
from tests.scenes import new_job

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

API = "acceptance-api"
LIMIT = 3
KILLS = 12


@pytest.mark.postgres
@pytest.mark.timeout(240)
def test_limit_of_three_holds_with_four_workers_and_random_kills(make_worker: MakeWorker, witness: Witness) -> None:
    """Four workers of four threads, kill -9 at random: never four at once by the rows, and three again within two seconds.

    The intervals are those of the attempts: a lost one lasts until it was taken back, because its lease may be valid.
    """
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    kinds = {"acceptance.call": "default", "acceptance.other_call": "other"}
    for number in range(600):
        job_type = dice.choice(list(kinds))
        arguments = json.dumps({"n": number, "seconds": 0.3}, separators=(",", ":"))
        new = new_job(
            job_type=job_type,
            queue_name=kinds[job_type],
            resource=API,
            arguments=arguments,
            payload_fingerprint=fingerprint(arguments),
        )
        store.enqueue(new, using="default")
    env = {
        "JOBS_IMPORTS": "tests.acceptance.resource_handlers",
        "JOBS_RESOURCES": json.dumps({API: {"limit": LIMIT}}),
    }
    workers = [make_worker(threads=4, env=env).start() for _ in range(4)]
    wait_for(lambda: _running() == LIMIT, what="full use")

    dead: set[int] = set()
    slowest = max(_kill_and_wait(dice, witness, dead) for _ in range(KILLS))

    for worker in workers:
        worker.process.send_signal(signal.SIGTERM)
    wait_for(lambda: all(worker.process.poll() is not None for worker in workers), what="the end of the workers")
    lost = Attempt.objects.filter(outcome="lost").count()
    print(f"{KILLS} kills, {lost} attempts lost, full use again within {slowest:.2f} s at most")
    assert lost >= KILLS // 2
    assert _most_at_once() == LIMIT
    assert slowest <= 5.0, "within two seconds on a machine with nothing else to do"


def _running() -> int:
    return Job.objects.filter(state="running", resource=API).count()


def _kill_and_wait(dice: random.Random, witness: Witness, dead: set[int]) -> float:
    """Kill a child that runs something; returns after how many seconds as many handlers are at work again."""

    def busy() -> list[int]:
        return [line["pid"] for line in witness.busy() if line["pid"] not in dead]

    pass_time(dice.uniform(0.1, 0.6))
    victim = dice.choice(wait_for(busy, what="a busy child"))
    os.kill(victim, signal.SIGKILL)
    dead.add(victim)
    began = time.monotonic()
    wait_for(lambda: len(busy()) == LIMIT and _running() == LIMIT, what="full use again")
    return time.monotonic() - began


def _most_at_once() -> int:
    spans = Attempt.objects.exclude(finished_at=None).values_list("started_at", "finished_at")
    moves = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    return max(itertools.accumulate(change for _, change in moves))
