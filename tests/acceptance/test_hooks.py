"""Propagators and middleware in real workers: what a producer had is active in another process, and only there."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone, translation

from django_jobs.models import Job, JobPayload
from django_jobs.operate.verify import verify
from tests.acceptance.conftest import MakeWorker, wait_until_done
from tests.acceptance.hook_handlers import carried, carried_async, carried_fork, carried_on
from tests.acceptance.workers import Witness, WorkerProcess, wait_for
from tests.carriers import inside

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

HERE = "tests.acceptance.hook_handlers"
CONTEXT = ["django_jobs.propagation.Language", "django_jobs.propagation.TimeZone", "tests.carriers.Tenant"]
HOOKS = {"JOBS_CONTEXT": ",".join(CONTEXT), "JOBS_MIDDLEWARE": f"{HERE}.Telling"}
IMPORTS = {"JOBS_IMPORTS": HERE}
PLAIN = [None, "en-us", "UTC"]


@pytest.fixture
def carrying(settings: Any) -> None:
    """Make this process a producer whose jobs carry language, time zone and tenant."""
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "CONTEXT": CONTEXT}


@pytest.fixture
def worker(make_worker: MakeWorker) -> Callable[..., WorkerProcess]:
    """Make a worker of this release; ``old`` makes one whose settings name no hooks."""

    def make(*, old: bool = False, **options: Any) -> WorkerProcess:
        return make_worker(env={**IMPORTS, **({} if old else HOOKS)}, **options).start()

    return make


def enqueue_as(number: int) -> list[str]:
    """Enqueue jobs of each kind as somebody else each time; returns what must be active in them."""
    who = [f"tenant-{number}", ["de", "fr", "nl"][number % 3], ["Asia/Tokyo", "Europe/Berlin"][number % 2]]
    with inside(who[0]), translation.override(who[1]), timezone.override(who[2]):
        carried.enqueue(n=100 * number)
        carried_on.enqueue(n=100 * number + 10, more=3)
        carried_async.enqueue(n=100 * number + 20)
    return who


def test_each_job_runs_under_what_its_producer_had(
    worker: Callable[..., WorkerProcess], witness: Witness, carrying: None
) -> None:
    """Two workers of four threads, twelve producers' contexts, an attempt killed in between: nobody gets another's."""
    expected = {number: enqueue_as(number) for number in range(12)}
    first = worker(threads=4)
    worker(threads=4)
    wait_for(lambda: len(witness.lines("active")) >= 5, what="some jobs")
    os.kill(first.child_pids[0], signal.SIGKILL)

    wait_until_done(seconds=90)

    told = witness.lines("active")
    assert {line["n"] for line in told} == {
        100 * number + place for number in range(12) for place in (0, 10, 11, 12, 13, 20)
    }
    assert [line for line in told if line["active"] != expected[line["n"] // 100]] == []
    assert [line for line in witness.lines("enter") if line["active"] != expected[line["n"] // 100]] == []
    assert len(witness.lines("enqueue")) >= 12  # by carried_on, in the workers
    assert Job.objects.filter(state="succeeded").count() == 72
    assert verify(using="default").clean


def test_releases_with_and_without_hooks_work_side_by_side(
    worker: Callable[..., WorkerProcess], witness: Witness, settings: Any
) -> None:
    """Rows of a producer without hooks run in a worker with them, and the other way round; nothing fails."""
    carried.enqueue(n=1)
    assert JobPayload.objects.get().context is None
    new = worker(threads=1)
    wait_until_done(seconds=60)
    new.kill_group()
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "CONTEXT": CONTEXT}
    with inside("acme"), translation.override("de"):
        carried.enqueue(n=2)
        carried.enqueue(n=3)
    old = worker(old=True, threads=1)
    wait_until_done(seconds=60)

    assert [line["active"] for line in witness.lines("active")] == [PLAIN] * 3
    assert old.log.read_text().count("Jobs carry 'tenant', for which CONTEXT names no propagator") == 1
    assert Job.objects.filter(state="succeeded").count() == 3


def test_a_fork_that_comes_back_leaves_no_middleware(worker: Callable[..., WorkerProcess], witness: Witness) -> None:
    """The copy of a process is ended before the middleware is left in it."""
    carried_fork.enqueue(n=1)
    worker(threads=1)
    wait_until_done(seconds=60)

    assert [(line["what"], line["n"]) for line in witness.lines()] == [("enter", 1), ("leave", 1)]
    assert Job.objects.get().state == "succeeded"
