"""A worker in miniature: claims and finishes no-op jobs until none is left; or one reaper that looks once."""

from __future__ import annotations

import os
import sys
import time
import uuid

import django

GIVE_UP = 60.0  # seconds


def work() -> int:
    """Claim a few jobs at a time under this process's id; return how many were finished."""
    from django_jobs import store
    from django_jobs.models import Job
    from tests.scenes import BUDGET, request

    worker, done = uuid.uuid4(), 0
    _start()
    deadline = time.monotonic() + GIVE_UP
    while time.monotonic() < deadline:
        claimed = store.claim(request(10, worker_id=worker, worker_child=os.getpid()), using="default")
        for job in claimed:
            store.succeed(job, result=None, budget=BUDGET)
        done += len(claimed)
        if not claimed and not Job.objects.filter(state="queued").exists():
            return done
    raise SystemExit("jobs were left when the time was over")


def crowd(queue: str = "reports", resource: str = "") -> int:
    """Claim from a queue with a limit, or what uses a resource with one, until nothing is left; return the most that ever ran at once there, as seen here."""
    from django.conf import settings

    from django_jobs import store
    from django_jobs.conf import get_settings
    from django_jobs.models import Job
    from django_jobs.store.resources import Lane
    from tests.scenes import BUDGET, request

    settings.DJANGO_JOBS = {
        **settings.DJANGO_JOBS,
        "QUEUES": {"reports": {"limit": 3}},
        "RESOURCES": {"shared": {"limit": 3}},
    }
    get_settings.cache_clear()
    worker, most = uuid.uuid4(), 0
    lanes = [Lane(queue, resource)] if resource else []
    _start()
    deadline = time.monotonic() + GIVE_UP
    while time.monotonic() < deadline:
        claimed = store.claim(
            request(4, queues=[queue], lanes=lanes, worker_id=worker, worker_child=os.getpid()), using="default"
        )
        most = max(most, Job.objects.filter(state="running").count())
        for job in claimed:
            store.succeed(job, result=None, budget=BUDGET)
        if not claimed and not Job.objects.filter(state="queued").exists():
            return most
    raise SystemExit("jobs were left when the time was over")


def reap() -> int:
    """Take back what was found before the start; return how many that were."""
    from django_jobs import store
    from django_jobs.domain.retry import Counters
    from django_jobs.domain.states import LossCause
    from tests.scenes import loss

    found = store.abandoned(using="default")
    _start()
    verdict = loss(LossCause.SILENT, counters=Counters(lost=1, silent_lost=1))
    return sum(store.rescue(item, loss=verdict) for item in found)


def _start() -> None:
    """Wait until every program of the test is ready."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()


if __name__ == "__main__":
    django.setup()
    sys.stdout.write(f"{ {'work': work, 'crowd': crowd, 'reap': reap}[sys.argv[1]](*sys.argv[2:]) }\n")
