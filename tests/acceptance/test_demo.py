"""`manage.py demo` as a user runs it, on both databases, and what it does when the promise is not kept."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from testproject.demo.plan import Fault
from testproject.demo.process_table import Process, processes
from tests.acceptance.workers import wait_for

ROOT = Path(__file__).resolve().parents[2]
DEMO_SECONDS = 180  # what a run may take
FIRST_STEPS_SECONDS = 60
STRAY = ("runworker", "django_jobs.worker.child", "testproject.payments.server", "testproject.demo.keeper")

StartDemo = Callable[..., "subprocess.Popen[str]"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def start_demo(database_url: str) -> Iterator[StartDemo]:
    """Return a function that starts the demo on the current test database."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "manage.py", "demo", *options],
                cwd=ROOT,
                env={**os.environ, "DATABASE_URL": database_url, "PYTHONUNBUFFERED": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return started[-1]

    yield start
    for demo in started:
        demo.kill()
        demo.communicate()


def started_by(demo: subprocess.Popen[str]) -> list[Process]:
    """Return the living processes that this demo and its workers started."""
    found, parents = [], {demo.pid}
    listed = [process for process in processes() if not process.is_dead]
    while new := [process for process in listed if process.parent in parents and process not in found]:
        found += new
        parents |= {process.pid for process in new}
    return found


def still_alive(former: list[Process]) -> list[str]:
    """Return what of these still runs the same program."""
    now = {(process.pid, process.command) for process in processes() if not process.is_dead}
    return [process.command for process in former if (process.pid, process.command) in now]


def read_until(demo: subprocess.Popen[str], text: str) -> None:
    """Read the demo's output up to a line that holds a text."""
    assert demo.stdout is not None
    for line in demo.stdout:
        if text in line:
            return
    pytest.fail(f"The demo ended without saying {text!r}: {demo.stderr.read() if demo.stderr else ''}")


def row(output: str, label: str) -> str:
    """Return the value of one line of the table."""
    found = re.search(rf"^\| {label} +\| (.*?) +\|$", output, re.MULTILINE)
    assert found, f"no line {label!r} in {output}"
    return found[1]


def test_demo_charges_every_order_once_through_all_faults(start_demo: StartDemo, tmp_path: Path) -> None:
    """Every fault fires, 239 orders are charged once, one is declined, nothing is left open; that takes 180 s at most."""
    ledger = tmp_path / "ledger.db"

    demo = start_demo("--ledger", str(ledger))
    output, errors = demo.communicate(timeout=DEMO_SECONDS)

    assert demo.returncode == 0, output + errors
    assert re.findall(r"^fired: (\w+) +([\w-]+):", output, re.MULTILINE) == [("yes", fault.value) for fault in Fault]
    assert row(output, "orders") == "240 (declined 1, paid 239)"
    assert row(output, "jobs by state") == "succeeded 720"
    assert row(output, "charges applied per order") == "1 for 239 paid, 0 for 1 declined"
    assert row(output, "needs a human") == "0"
    assert [row(output, label) for label in ("duplicates answered", "conflicts refused")] == ["1", "1"]
    for label in ("reconciled effects", "resent with the same key", "stale writes refused"):
        assert int(row(output, label)) >= 1, label
    assert re.search(r"exit [1-9].*silent [1-9]", row(output, "losses"))
    assert re.findall(r"^ *(\d+) %", output, re.MULTILINE)[-1] == "100"
    assert _charges(ledger) == Counter({1: 239})


@pytest.mark.slow
@pytest.mark.sqlite
def test_demo_fails_when_a_fault_did_not_fire(start_demo: StartDemo) -> None:
    """A run that proves less than it promises ends with 1 and names each fault that is missing."""
    demo = start_demo("--without", "freeze", "--without", "decline")
    output, errors = demo.communicate(timeout=DEMO_SECONDS)

    assert demo.returncode == 1, output + errors
    assert re.findall(r"^  - The fault '([\w-]+)' did not fire", errors, re.MULTILINE) == ["decline", "freeze"]
    assert errors.count("\n  - ") == 2, errors
    assert "No order was charged twice" not in output


@pytest.mark.slow
@pytest.mark.postgres
def test_demo_fails_when_an_order_was_charged_twice(start_demo: StartDemo, tmp_path: Path) -> None:
    """A second charge in the provider's ledger, as a provider without keys would apply it, ends the run with 1."""
    ledger = tmp_path / "ledger.db"
    demo = start_demo("--ledger", str(ledger), "--without", "freeze")
    read_until(demo, "was killed")

    with closing(sqlite3.connect(ledger, timeout=10)) as provider, provider:
        provider.execute(
            "INSERT INTO movements SELECT 'ch_again', kind, status, order_id, amount, currency, charge, NULL,"
            " operation, applied_at, request FROM movements WHERE status = 'succeeded' LIMIT 1"
        )
    output, errors = demo.communicate(timeout=DEMO_SECONDS)

    assert demo.returncode == 1, output + errors
    assert re.search(r"^  - Order S-\d+ was charged 2 times\.$", errors, re.MULTILINE)
    assert "2 for 1 paid" in row(output, "charges applied per order")


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("number", "status"),
    [
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 130, marks=pytest.mark.slow),
        (signal.SIGKILL, -9),
    ],
)
def test_demo_leaves_no_process_behind(start_demo: StartDemo, number: signal.Signals, status: int) -> None:
    """Ctrl-C, SIGTERM and even SIGKILL in the middle of a run end the provider and all workers, the frozen one too."""
    demo = start_demo()
    read_until(demo, "was killed")
    former = started_by(demo)
    kinds = {kind for kind in STRAY for process in former if kind in process.command}

    demo.send_signal(number)
    _, errors = demo.communicate(timeout=FIRST_STEPS_SECONDS)

    assert kinds == set(STRAY), former
    assert demo.returncode == status, errors
    wait_for(lambda: not still_alive(former), seconds=20, what=f"the end of {still_alive(former)}")
    assert still_alive(former) == []


@pytest.mark.sqlite
def test_demo_refuses_a_ledger_that_exists(start_demo: StartDemo, tmp_path: Path) -> None:
    """The ledger of another run is neither continued nor overwritten."""
    ledger = tmp_path / "ledger.db"
    ledger.write_text("kept")

    demo = start_demo("--ledger", str(ledger))
    _, errors = demo.communicate(timeout=FIRST_STEPS_SECONDS)

    assert demo.returncode == 1
    assert "exists already" in errors
    assert ledger.read_text() == "kept"


def _charges(ledger: Path) -> Counter[int]:
    with closing(sqlite3.connect(ledger)) as provider:
        rows = provider.execute(
            "SELECT count(*) FROM movements WHERE kind = 'charge' AND status = 'succeeded' GROUP BY order_id"
        )
        return Counter(times for (times,) in rows)
