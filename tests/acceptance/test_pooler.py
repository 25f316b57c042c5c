"""Workers behind PgBouncer in transaction mode, where each transaction may meet another session."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from django_jobs.models import Attempt, Job, SideEffect
from django_jobs.operate.verify import verify
from tests.acceptance.conftest import MakeWorker, states, wait_until_done
from tests.acceptance.handlers import everything, row, work
from tests.acceptance.recovery import kill_in_handler
from tests.acceptance.workers import QUICK, Witness, wait_for
from tests.poolers import Pooler

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.pgbouncer]

Rows = Callable[[], Counter[int]]

JOBS = 200


def test_f11_jobs_of_every_kind_survive_a_pooler_and_a_kill(
    make_worker: MakeWorker, witness: Witness, rows: Rows, pooler: Pooler
) -> None:
    """Atomic handlers, completions, steps, effects and follow-up jobs share few sessions and leave nothing in them."""
    row.enqueue_many({"n": n, "seconds": 0.02} for n in range(0, JOBS, 4))
    work.enqueue_many({"n": n, "seconds": 0.02} for n in range(1, JOBS, 4))
    everything.enqueue_many({"n": n, "seconds": 0.02} for n in (*range(2, JOBS, 4), *range(3, JOBS, 4)))
    worker = make_worker(database_url=pooler.url, processes=2, env={"JOBS_TRANSACTION_POOLER": "True"}, times=QUICK)
    worker.start()
    killed = kill_in_handler(worker, witness, random.Random(7))

    wait_until_done(seconds=120)
    worker.term()
    assert worker.wait(seconds=60) == 0

    followed = [n + 1000 for n in range(JOBS) if n % 4 > 1]
    assert rows() == Counter([*range(JOBS), *followed])
    assert states() == {"succeeded": JOBS + len(followed)}
    assert SideEffect.objects.filter(state="succeeded").count() == JOBS // 2
    assert len({line["key"] for line in witness.lines("call")}) == JOBS // 2, (
        "one key per effect, whatever was repeated"
    )
    assert not killed.jobs or Attempt.objects.filter(outcome="lost", loss_cause="exit").exists()
    assert "prepared statement" not in worker.text
    assert "Traceback" not in worker.text
    assert worker.text.count("LISTEN_DSN is not, so notifications cannot be heard") == 1, "it is told once"
    assert pooler.left_behind() == []
    assert verify(using="default").violated == ()


def test_f11_worker_with_a_direct_line_is_woken_behind_a_pooler(
    make_worker: MakeWorker, witness: Witness, rows: Rows, pooler: Pooler, database_url: str
) -> None:
    """LISTEN_DSN goes past the pooler: a job starts long before the poll."""
    from tests.acceptance.test_wake import RARELY, asleep

    env = {"JOBS_TRANSACTION_POOLER": "True", "JOBS_LISTEN_DSN": database_url}
    asleep(make_worker(database_url=pooler.url, env=env, times=RARELY).start())

    row.enqueue(n=1)
    wait_for(lambda: witness.lines("start", n=1), seconds=50, what="the start")
    wait_until_done(seconds=60)

    assert Job.objects.get().state == "succeeded"
    assert pooler.left_behind() == []
