"""Development: a worker follows edits of its code, and only there."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_jobs import job
from django_jobs.define.definition import DurableJob
from django_jobs.define.registry import unregister
from django_jobs.management import reload
from tests.acceptance.conftest import MakeWorker, outcomes, states
from tests.acceptance.workers import Witness, group_members, wait_for

Rows = Callable[[], Counter[int]]
JOB_TYPE = "acceptance.edited"
SOURCE = """
from django_jobs import job
from tests.acceptance.handlers import FAST, insert_row, take, tell

@job(type="acceptance.edited", retry=FAST, takes_context=True)
def edited(context, n):
    tell("start", n, version="{version}")
    if n == 1 and "{version}" == "first":
        take(5)
    with context.complete():
        insert_row(n)
    tell("end", n, version="{version}")
"""


@pytest.fixture
def edited() -> Iterator[DurableJob[..., Any]]:
    """The job type whose handler is edited, as an enqueueing process knows it."""

    def declared(n: int) -> None:
        """Do nothing; the worker has a handler of its own."""

    yield job(type=JOB_TYPE)(declared)
    unregister(JOB_TYPE)


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("grace", "first"), [("10", {"succeeded": 2}), ("1", {"released": 1, "succeeded": 2})])
def test_edited_handler_runs_next_and_no_job_is_lost_r67(
    make_worker: MakeWorker,
    witness: Witness,
    rows: Rows,
    edited: DurableJob[..., Any],
    tmp_path: Path,
    vendor: str,
    grace: str,
    first: dict[str, int],
) -> None:
    """A job of 5 s that runs during an edit ends or is given back; then the new code runs, also after a broken edit."""
    source = tmp_path / "edited_handlers.py"
    source.write_text(SOURCE.format(version="first"))
    environment = {"DEBUG": "true", "JOBS_IMPORTS": "edited_handlers", "PYTHONPATH": str(tmp_path), "LOG_LEVEL": "INFO"}
    worker = make_worker(threads=1, env=environment, arguments=("--grace", grace)).start()
    edited.enqueue(n=1)
    wait_for(lambda: witness.lines("start", n=1), seconds=60, what=f"the start: {worker.text}")

    source.write_text(SOURCE.format(version="the second one"))
    edited.enqueue(n=2)

    wait_for(lambda: witness.lines("end", n=2), seconds=60, what=f"the new code: {worker.text}")
    wait_for(lambda: witness.lines("end", n=1), seconds=60, what=f"the interrupted job: {worker.text}")
    assert [line["version"] for line in witness.lines("start", n=2)] == ["the second one"]
    wait_for(lambda: states() == {"succeeded": 2}, what="both")
    assert rows() == {1: 1, 2: 1}
    assert outcomes() == first

    source.write_text("def broken(:\n")
    wait_for(lambda: "started again when code changes" in worker.text, seconds=60, what=f"the failure: {worker.text}")
    edited.enqueue(n=3)
    source.write_text(SOURCE.format(version="the third and last one"))
    wait_for(lambda: witness.lines("end", n=3), seconds=60, what=f"the mended code: {worker.text}")
    children = worker.child_pids
    worker.term()

    assert worker.wait(seconds=30) == 0
    assert len(children) == 1
    assert group_members(children[0]) == []


@pytest.mark.long
@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_worker_does_not_outlive_its_reloader(make_worker: MakeWorker) -> None:
    """kill -9 of the reloader: the worker that it started drains and ends."""
    worker = make_worker(threads=1, env={"DEBUG": "true"}).start()
    (started,) = wait_for(lambda: worker.child_pids, seconds=60, what="the worker")
    wait_for(lambda: len(group_members(started)) == 2, seconds=60, what="its child")

    worker.kill_supervisor()

    wait_for(lambda: not group_members(started), seconds=30, what="the end of the worker")


@pytest.mark.parametrize(
    ("debug", "asked", "drain", "wanted"),
    [
        (True, None, False, True),
        (True, True, False, True),
        (True, False, False, False),
        (True, None, True, False),
        (False, None, False, False),
        (False, False, False, False),
    ],
)
def test_reload_is_for_debug_alone_r67(
    settings: Any, monkeypatch: pytest.MonkeyPatch, debug: bool, asked: bool | None, drain: bool, wanted: bool
) -> None:
    """On by default with DEBUG, off without it and to drain, and it can be switched off."""
    settings.DEBUG = debug
    monkeypatch.setattr(sys, "argv", ["manage.py", "runworker"])

    assert reload.is_wanted({"reload": asked, "drain": drain}) is wanted


@pytest.mark.parametrize(
    ("debug", "drain", "argv", "told"),
    [
        (False, False, ["manage.py", "runworker"], "DEBUG=True"),
        (True, True, ["manage.py", "jobs", "work"], "drains"),
        (True, False, ["program.py"], "command line"),
    ],
)
def test_reload_where_it_cannot_be_had_is_a_usage_error_r67(
    settings: Any, monkeypatch: pytest.MonkeyPatch, debug: bool, drain: bool, argv: list[str], told: str
) -> None:
    """--reload is refused with the reason, as exit code 2; a program that calls the command is never started anew."""
    settings.DEBUG = debug
    monkeypatch.setattr(sys, "argv", argv)

    with pytest.raises(CommandError, match=told) as refused:
        call_command("runworker", reload=True, drain=drain, skip_checks=True)

    assert refused.value.returncode == 2
    assert reload.is_wanted({"reload": None, "drain": drain}) is False
