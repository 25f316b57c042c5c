"""F7: COMMITs whose reply, or whose request, is lost on the way: each job ends as the database says it did, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Literal

import pytest

from django_jobs.models import Attempt
from django_jobs.operate.verify import verify
from django_jobs.testing.proxy import PostgresProxy
from tests.acceptance.conftest import MakeWorker, outcomes, states, wait_until_done
from tests.acceptance.handlers import row, work
from tests.crash.handlers import fails_first, plain

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

Rows = Callable[[], Counter[int]]


def lose_commits(
    proxy: PostgresProxy,
    make_worker: MakeWorker,
    rows: Rows,
    *,
    fault: Literal["drop_reply", "drop_request"],
    times: int,
    seconds: float,
) -> None:
    """Lose each third COMMIT of a worker until so many are lost; every job succeeds, with its row, once."""
    jobs = times * 3  # each has one COMMIT at least
    row.enqueue_many([{"n": n} for n in range(0, jobs, 2)])
    work.enqueue_many([{"n": n} for n in range(1, jobs, 2)])
    rule = proxy.lose("COMMIT", fault=fault, nth=3, times=times)
    worker = make_worker(database_url=proxy.url, threads=4).start()
    worker.wait_for(rule.fired.is_set, seconds=seconds, what=f"{times} losses")
    wait_until_done(seconds=seconds)

    assert states() == {"succeeded": jobs}
    assert rows() == Counter(dict.fromkeys(range(jobs), 1))
    assert Attempt.objects.filter(outcome="succeeded").count() == jobs, "each job succeeded in one attempt"
    assert not Attempt.objects.filter(outcome=None).exists()
    assert [item.invariant.name for item in verify(using="default").violated] == []
    assert worker.is_running()
    print(f"\nF7 {fault}: {rule.hit} COMMITs lost over {jobs} jobs, 0 wrong outcomes; attempts {dict(outcomes())}")


@pytest.mark.long
def test_f07_fifty_lost_commit_replies(proxy: PostgresProxy, make_worker: MakeWorker, rows: Rows) -> None:
    """50 replies are lost: what was committed counts, and what was not is done again."""
    lose_commits(proxy, make_worker, rows, fault="drop_reply", times=50, seconds=120)


@pytest.mark.long
def test_f07_fifty_lost_commit_requests(proxy: PostgresProxy, make_worker: MakeWorker, rows: Rows) -> None:
    """50 requests are lost: nothing of theirs was written, and all is done again."""
    lose_commits(proxy, make_worker, rows, fault="drop_request", times=50, seconds=120)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_f07_a_thousand_lost_commit_replies(proxy: PostgresProxy, make_worker: MakeWorker, rows: Rows) -> None:
    """1,000 replies are lost: 0 wrong outcomes."""
    lose_commits(proxy, make_worker, rows, fault="drop_reply", times=1000, seconds=1500)


@pytest.mark.long
@pytest.mark.parametrize("fault", ["drop_reply", "drop_request"])
def test_f07_statements_that_commit_by_themselves(
    proxy: PostgresProxy, make_worker: MakeWorker, rows: Rows, fault: Literal["drop_reply", "drop_request"]
) -> None:
    """Claims and ends of plain handlers are lost again and again: each job succeeds; none stays running."""
    plain.enqueue_many([{"n": n} for n in range(40)])
    fails_first.enqueue_many([{"n": n} for n in range(40, 50)])
    rules = [
        proxy.lose(text, fault=fault, nth=4, times=5)
        for text in ("SET state = 'running'", "SET state = 'succeeded'", "SET state = CASE")
    ]
    env = {"JOBS_IMPORTS": "tests.acceptance.handlers,tests.crash.handlers"}
    worker = make_worker(database_url=proxy.url, threads=2, env=env).start()
    wait_until_done(seconds=120)

    assert states() == {"succeeded": 50}
    assert Attempt.objects.filter(outcome="succeeded").count() == 50
    assert rules[0].hit > 0
    assert rules[1].hit > 0
    assert worker.is_running()
    print(f"\nF7 {fault}: {[rule.hit for rule in rules]} lost; attempts {dict(outcomes())}")
