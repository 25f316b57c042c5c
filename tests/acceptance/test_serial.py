"""Serial keys under real workers that are killed: never two of a key at once, and each key in its order."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import defaultdict
from itertools import pairwise

import pytest

from django_jobs import store
from django_jobs.domain.identity import fingerprint
from django_jobs.models import Attempt, Job
from django_jobs.operate.verify import verify
from tests.acceptance.conftest import MakeWorker, wait_until_done
from tests.acceptance.workers import Witness, pass_time, wait_for
from tests.scenes import new_job

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

KEYS, JOBS, KILLS = 6, 120, 8


@pytest.mark.postgres
@pytest.mark.timeout(240)
def test_every_key_keeps_its_order_through_kills(make_worker: MakeWorker, witness: Witness) -> None:
    """Two workers of four threads, kill -9 at random: by the rows, the attempts of a key never overlap or change order."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for number in range(JOBS):
        arguments = json.dumps({"n": number, "seconds": 0.1}, separators=(",", ":"))
        new = new_job(
            job_type="acceptance.work",
            serial_key=f"account:{number % KEYS}",
            serial_skips=True,  # one that is hit again and again may be convicted; the others go on
            arguments=arguments,
            payload_fingerprint=fingerprint(arguments),
        )
        store.enqueue(new, using="default")
    for _ in range(2):
        make_worker(threads=4).start()
    dead: set[int] = set()
    for _ in range(KILLS):
        pass_time(dice.uniform(0.2, 0.7))
        busy = wait_for(
            lambda: [line["pid"] for line in witness.busy() if line["pid"] not in dead], what="a busy child"
        )
        dead.add(victim := dice.choice(busy))
        os.kill(victim, signal.SIGKILL)

    wait_until_done(seconds=150)

    assert dead
    assert set(Job.objects.values_list("state", "dead_reason")) <= {("succeeded", ""), ("dead_lettered", "poison")}
    keys = dict(Job.objects.values_list("pk", "serial_key"))
    spans = defaultdict(list)
    for job_id, began, ended in Attempt.objects.order_by("started_at").values_list(
        "job_id", "started_at", "finished_at"
    ):
        spans[keys[job_id]].append((began, ended, job_id))
    for attempts in spans.values():
        assert all(ended <= following for (_, ended, _), (following, _, _) in pairwise(attempts))
        jobs = [job_id for _, _, job_id in attempts]
        assert jobs == sorted(jobs), "a lost job is the next of its key again"
    print(f"{len(dead)} kills, {Attempt.objects.filter(outcome='lost').count()} attempts lost")
    assert wait_for(lambda: verify(using="default").clean, what="a clean verify")
