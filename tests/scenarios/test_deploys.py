"""F26: workers of two code versions on one database, and one whose code cannot be imported."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from django_jobs import clock, store
from django_jobs.conf import get_settings
from django_jobs.domain.identity import fingerprint
from django_jobs.models import Attempt, Job, JobPayload, Worker
from tests.acceptance.conftest import MakeWorker, wait_until_done
from tests.acceptance.workers import Witness, WorkerProcess, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long, pytest.mark.postgres]

Rows = Callable[[], Counter[int]]
DEPLOYS = Path(__file__).parent / "deploys"


def code(name: str) -> ModuleType:
    """Declare here what one code version declares, to enqueue for it."""
    spec = importlib.util.spec_from_file_location(f"rollout_{name}", DEPLOYS / name / "rollout.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def worker_of(make_worker: MakeWorker, name: str) -> WorkerProcess:
    """Start a worker that has this code version in its path."""
    env = {"JOBS_IMPORTS": "tests.acceptance.handlers,rollout", "PYTHONPATH": str(DEPLOYS / name)}
    return make_worker(threads=2, env=env, arguments=("--name", name)).start()


def aside(*ids: Any) -> bool:
    """Say whether these jobs were moved out of the way of others."""
    return not Job.objects.filter(pk__in=ids).exclude(state="scheduled", lane__gt="").exists()


def test_f26_old_worker_leaves_what_only_new_code_can_run(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """A newer payload version and an unknown type wait without an attempt or a dead letter until a new worker comes."""
    new = code("new")
    old_one = new.charge.enqueue(n=3).id
    Job.objects.filter(pk=old_one).update(payload_version=1, payload_fingerprint=fingerprint('{"n":3}'))
    JobPayload.objects.filter(pk=old_one).update(arguments='{"n":3}')
    newer, unknown = new.charge.enqueue(n=1, currency="NOK").id, new.refund.enqueue(n=2).id

    old = worker_of(make_worker, "old")
    wait_for(lambda: Job.objects.get(pk=old_one).state == "succeeded", seconds=90, what="the job of the old code")
    wait_for(lambda: aside(newer, unknown), seconds=30, what="the others out of the way")
    Worker.objects.update(started_at=clock.now() - 2 * get_settings().unknown_type_grace)
    assert store.expire(using="default", judge=Worker.objects.get(name="old").pk) == [], (
        "within the grace nobody judges"
    )
    assert not Attempt.objects.filter(job_id__in=[newer, unknown]).exists()

    worker_of(make_worker, "new")
    wait_until_done(seconds=90)

    assert old.is_running()
    ran = {line["n"]: (line["code"], line.get("currency")) for line in witness.lines("start")}
    assert ran == {1: ("new", "NOK"), 2: ("new", None), 3: ("old", None)}
    assert rows() == {1: 1, 2: 1, 3: 1}
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"succeeded"}
    assert {job.pk: job.unknown_count + job.free_count for job in Job.objects.all()} == {
        old_one: 0,
        newer: 0,
        unknown: 0,
    }


def test_f26_worker_whose_code_cannot_be_imported_takes_nothing(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """It says which module and why, ends with an error, and touches no job: whoever has the code runs it."""
    job_id = code("new").charge.enqueue(n=1).id

    broken = worker_of(make_worker, "broken")
    assert broken.wait(seconds=90) != 0

    assert "no_such_module_of_the_new_code" in broken.text
    assert (Job.objects.get(pk=job_id).state, Attempt.objects.count()) == ("queued", 0)
    worker_of(make_worker, "new")
    wait_until_done(seconds=90)
    assert rows() == {1: 1}
