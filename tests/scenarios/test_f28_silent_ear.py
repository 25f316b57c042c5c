"""F28: the connection that hears notifications dies without a word: the poll finds what it would have told."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from django_jobs.models import QueueControl
from django_jobs.testing.proxy import PostgresProxy
from django_jobs.worker.idle import ECHOES
from tests.acceptance.conftest import MakeWorker, wait_until_done
from tests.acceptance.handlers import row
from tests.acceptance.workers import QUICK, Witness, pass_time, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.long]

Rows = Callable[[], Counter[int]]
POLL = 3.0


@pytest.fixture
def ear(database_url: str) -> Iterator[PostgresProxy]:
    """A proxy for the listening connection alone."""
    with PostgresProxy(database_url) as started:
        yield started


def test_f28_poll_takes_over_when_the_ear_dies_silently(
    ear: PostgresProxy, make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """The worker believes that it hears; each job still starts within a poll, and nothing else of the worker suffers."""
    env = {"JOBS_LISTEN_DSN": ear.url}
    worker = make_worker(times={**QUICK, "JOBS_POLL": str(POLL)}, env=env).start().wait_ready(seconds=180)
    asleep = QueueControl.objects.filter(queue_name="default", idle_until__isnull=False)
    worker.wait_for(asleep.exists, seconds=60, what="an announced sleep")
    before = worker.group()
    ear.blackhole()

    late = []
    for n in range(3):
        pass_time(ECHOES[-1] + 0.5)  # after the last job it looks a few times more
        asked = time.monotonic()
        row.enqueue(n=n)
        start = wait_for(lambda n=n: witness.lines("start", n=n), seconds=30, what="the start")[0]
        late.append(start["at"] - asked)
        wait_until_done(seconds=30)

    print(
        f"\nF28: started {', '.join(f'{seconds:.2f}' for seconds in late)} s after the enqueue, with a poll of {POLL} s"
    )
    assert max(late) <= POLL + 2, "a poll, and some for a busy machine"
    assert max(late) >= 1, "nobody heard"
    assert rows() == {0: 1, 1: 1, 2: 1}
    assert worker.group() == before
