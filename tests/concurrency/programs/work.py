"""A worker in miniature: claims and finishes no-op jobs until none is left; or one reaper that looks once."""

from __future__ import annotations

import os
import sys
import time
import uuid

import django

django.setup()

from django_jobs import store
from django_jobs.domain.retry import Counters
from django_jobs.domain.states import LossCause
from django_jobs.models import Job
from tests.scenes import BUDGET, loss, request

GIVE_UP = 60.0  # seconds


def work() -> None:
    """Claim a few jobs at a time under this process's id."""
    worker = uuid.uuid4()
    deadline = time.monotonic() + GIVE_UP
    while time.monotonic() < deadline:
        claimed = store.claim(request(10, worker_id=worker, worker_child=os.getpid()), using="default")
        for job in claimed:
            store.succeed(job, result=None, budget=BUDGET)
        if not claimed and not Job.objects.filter(state="queued").exists():
            return
    raise SystemExit("jobs were left when the time was over")


def reap() -> None:
    """Take back what was found before the start, and print how much that was."""
    done = [store.rescue(item, loss=loss(LossCause.SILENT, counters=Counters(lost=1, silent_lost=1))) for item in found]
    print(sum(done))


if __name__ == "__main__":
    found = store.abandoned(using="default")
    print("ready", flush=True)
    sys.stdin.readline()
    {"work": work, "reap": reap}[sys.argv[1]]()
