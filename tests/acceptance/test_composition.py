"""kill -9 among batches and chains: each callback and each link comes once, and none is forgotten."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from django_jobs import batch, chain
from django_jobs.models import Batch, ChainLink, Job
from django_jobs.operate.verify import verify
from tests.acceptance.conftest import MakeWorker, states, wait_until_done
from tests.acceptance.handlers import row, work
from tests.acceptance.recovery import kill_in_handler
from tests.acceptance.workers import QUICK, Witness, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long, pytest.mark.timeout(600)]

Rows = Callable[[], Counter[int]]
SEED = 20261130
BATCHES, CHAINS, LINKS = 30, 20, 4
TAKES = 0.03  # seconds


def compose() -> int:
    """Make batches of three members with a callback, and chains; returns how many rows there must be in the end."""
    n = iter(range(10_000))
    for _ in range(BATCHES):
        members = [handler.prepare(n=next(n), seconds=TAKES) for handler in (row, work, row)]
        batch.enqueue(members, callback=work.prepare(n=next(n), seconds=TAKES))
    for _ in range(CHAINS):
        chain(*[(row, work)[place % 2].prepare(n=next(n), seconds=TAKES) for place in range(LINKS)]).enqueue()
    return next(n)


@pytest.mark.parametrize("kills", [12])
def test_kills_forget_and_double_no_follower(make_worker: MakeWorker, witness: Witness, rows: Rows, kills: int) -> None:
    """A child is killed again and again at random moments of handlers and of what follows them."""
    rng = random.Random(SEED)
    many = compose()
    worker = make_worker(times=QUICK, threads=2).start()
    for _ in range(kills):
        hit = kill_in_handler(worker, witness, rng)
        # The next kill comes when these are done: a job that dies whenever it runs is convicted, and rightly.
        wait_for(lambda hit=hit: hit.jobs <= {line["job"] for line in witness.lines("end")}, what="recovery")  # type: ignore[misc]
    wait_for(lambda: not Batch.objects.filter(closed_at=None).exists(), seconds=180, what="the end of all batches")
    wait_for(lambda: not ChainLink.objects.filter(job_id=None).exists(), seconds=180, what="the last links")
    wait_until_done(seconds=120)

    print(f"\n{many} jobs, {kills} kills, seed {SEED}")
    assert states() == {"succeeded": many}
    assert rows() == Counter(dict.fromkeys(range(many), 1))
    assert Job.objects.filter(payload__key__startswith="batch:").count() == BATCHES
    assert verify(using="default").violated == ()
