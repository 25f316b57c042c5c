"""A real worker that leaves a queue to others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from django_jobs.models import Job, Worker
from tests.acceptance.conftest import MakeWorker
from tests.acceptance.handlers import row
from tests.acceptance.workers import Witness

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def test_worker_of_all_queues_but_one(
    make_worker: MakeWorker, witness: Witness, rows: Callable[[], Counter[int]]
) -> None:
    """It empties every other queue and ends; its row says what it left out, for whoever looks who serves what."""
    row.using(queue_name="slow").enqueue(n=1)
    row.using(queue_name="mail").enqueue(n=2)
    row.enqueue(n=3)

    worker = make_worker(threads=1, processes=1, arguments=("--exclude-queue", "slow", "--drain")).start()

    assert worker.process.wait(60) == 0, worker.text
    assert rows() == {2: 1, 3: 1}
    assert Job.objects.get(queue_name="slow").state == "queued"
    assert Worker.objects.get().queues == '{"except": ["slow"]}'
