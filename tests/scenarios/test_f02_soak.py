"""F2: kill -9 at random moments over many jobs: nothing lost, nothing stuck, nothing charged twice."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from django_jobs.operate.verify import verify
from testproject.payments.process import ProviderProcess
from tests.acceptance.conftest import MakeWorker
from tests.acceptance.workers import QUICK
from tests.scenarios.soak import Soak, run_soak

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

Rows = Callable[[], Counter[int]]


def soak_workers(
    make_worker: MakeWorker, rows: Rows, ledger: Path, soak: Soak, *, seconds: float, workers: int = 2
) -> None:
    """Run workers of two processes with two threads each against a provider process, and check everything."""
    soak.enqueue()
    with ProviderProcess(ledger=ledger, start_timeout=60) as provider:
        env = {"JOBS_IMPORTS": "tests.scenarios.charges", "PAYMENTS_URL": provider.url}
        # Long enough that a loaded machine makes nobody silent: every loss is then one of a kill.
        times = {**QUICK, "JOBS_SILENT_AFTER": "60"}
        made = [make_worker(threads=2, processes=2, times=times, env=env) for _ in range(workers)]
        took = run_soak(soak, made, seconds=seconds)
        print(f"\nF2 {soak.check(provider, rows())}; {took:.0f} s")
    assert [item.invariant.name for item in verify(using="default").violated] == []


def seed() -> int:
    """Return a new seed for each run, or the one of F2_SEED."""
    return int(os.environ.get("F2_SEED") or time.time())


@pytest.mark.long
@pytest.mark.timeout(600)
def test_f02_random_kills_over_500_jobs(make_worker: MakeWorker, rows: Rows, tmp_path: Path) -> None:
    """500 jobs and 25 kills in four children: 0 lost, 0 stuck, 0 charged twice; each loss is one of a kill."""
    soak = Soak(jobs=500, kills=25, seconds=0.1, seed=seed())
    print(f"\nF2_SEED={soak.seed}")
    soak_workers(make_worker, rows, tmp_path / "ledger.db", soak, seconds=120)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_f02_random_kills_over_ten_thousand_jobs(make_worker: MakeWorker, rows: Rows, tmp_path: Path) -> None:
    """10,000 jobs and 500 kills in eight children: 0 lost, 0 stuck, 0 charged twice; each loss is one of a kill."""
    soak = Soak(jobs=10_000, kills=500, seconds=0.1, seed=seed())
    print(f"\nF2_SEED={soak.seed}")
    soak_workers(make_worker, rows, tmp_path / "ledger.db", soak, seconds=900, workers=4)
