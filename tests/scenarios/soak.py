"""Random kills over many jobs: who was hit, and what became of every job, of its row and of its charge."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import connection

from django_jobs.models import Attempt, Job
from testproject.payments.process import ProviderProcess
from tests.acceptance.workers import WorkerProcess, pass_time, wait_for
from tests.scenarios import charges

KINDS = (charges.keyed, charges.keyed, charges.asked, charges.blind, charges.plain)  # order n is of kind n % 5
TOGETHER = 20  # orders whose jobs of one kind are stored one after the other
HOLDER = ("worker_id", "worker_child")
LATE = timedelta(seconds=5)  # in which a server, on a busy machine, does what a dead process had sent
UNFINISHED = ("scheduled", "queued", "running", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One child that was killed: as its worker counts it, and the database's time right before and right after."""

    worker_id: str
    child: int
    before: Any
    after: Any


@dataclass(slots=True, kw_only=True)
class Soak:
    """One run over so many jobs with so many kills."""

    jobs: int
    kills: int
    seconds: float  # of a handler
    seed: int
    log: list[Kill] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)

    def enqueue(self) -> None:
        """Store all jobs, those of all kinds among each other; their orders are numbered from 1."""
        self.orders = list(range(1, self.jobs + 1))
        for first in range(0, self.jobs, TOGETHER):
            for remainder, kind in enumerate(KINDS):
                mine = [n for n in self.orders[first : first + TOGETHER] if n % len(KINDS) == remainder]
                kind.enqueue_many([{"n": n, "seconds": self.seconds} for n in mine])

    def kill_all_along(self, workers: list[WorkerProcess]) -> None:
        """Kill children that hold jobs, spread over the whole run, until all kills were made."""
        rng = random.Random(self.seed)
        for number in range(self.kills):
            due = int(number * self.jobs * 0.95 / self.kills)
            while _finished() < due:
                assert all(worker.is_running() for worker in workers), "a supervisor ended"
                pass_time(0.05)
            pass_time(rng.uniform(0, self.seconds))
            self._kill_one(rng, workers)
            if (number + 1) % 25 == 0:
                print(f"  {number + 1} kills, {_finished()} jobs done", flush=True)

    def _kill_one(self, rng: random.Random, workers: list[WorkerProcess]) -> None:
        while not (children := _children_with_jobs(workers)):
            pass_time(0.05)
        worker, child = rng.choice(sorted(children))
        pid = children[(worker, child)]
        before = _database_time()
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:  # it ended by itself meanwhile
            return
        wait_for(lambda: not _command(pid), what="the child's death")
        self.log.append(Kill(worker_id=worker, child=child, before=before, after=_database_time()))

    def check(self, provider: ProviderProcess, rows: Counter[int]) -> str:
        """Assert what the guarantees say, and return the figures."""
        jobs = Counter(Job.objects.values_list("state", "dead_reason"))
        assert sum(jobs.values()) == self.jobs, "an acknowledged job is gone"
        assert not Job.objects.filter(state__in=UNFINISHED).exists(), f"stuck: {jobs}"
        assert not Attempt.objects.filter(outcome=None).exists(), "an attempt stayed open"
        self._check_dead(jobs)
        hit = self._check_losses()
        succeeded = {int(n) for n in self._orders_of("succeeded")}
        assert rows == Counter(dict.fromkeys(succeeded, 1)), "a row is there once with a success, and only then"
        applied = {int(n): many for n, many in provider.ledger()["applied_per_order"].items()}
        assert {n: many for n, many in applied.items() if many > 1} == {}, "a charge was applied twice"
        charged = {n for n in succeeded if KINDS[n % len(KINDS)] is not charges.plain}
        assert charged <= set(applied), "a success without its charge"
        review = jobs["dead_lettered", "effect_review"]
        poison = jobs["dead_lettered", "poison"]
        return (
            f"seed {self.seed}: {self.jobs} jobs, {len(self.log)} kills, {hit} losses, each of an attempt that a killed "
            f"process held, and all others of these processes had ended by themselves; "
            f"0 lost, 0 stuck, 0 charged twice; {jobs['succeeded', '']} succeeded, {poison} poison, {review} in review "
            f"(provider without keys that cannot be asked)"
        )

    def _orders_of(self, state: str) -> list[int]:
        texts = Job.objects.filter(state=state).values_list("payload__arguments", flat=True)
        return [json.loads(text)["n"] for text in texts]

    def _check_dead(self, jobs: Counter[tuple[str, str]]) -> None:
        for job in Job.objects.filter(state="dead_lettered").exclude(
            job_type="soak.blind", dead_reason="effect_review"
        ):
            attempts = list(Attempt.objects.filter(job_id=job.pk).order_by("number"))
            story = [(attempt.outcome, attempt.loss_cause, attempt.alone, attempt.message) for attempt in attempts]
            assert job.dead_reason == "poison", (jobs, job.job_type, story)
            assert attempts[-1].alone, f"convicted in company: {story}"
            assert sum(attempt.outcome == "lost" for attempt in attempts) >= 3, story

    def _check_losses(self) -> int:
        """Every attempt that a killed child had not ended itself is a loss with the kill's status, and no other is."""
        killed = {(kill.worker_id, kill.child): kill for kill in self.log}
        assert len(killed) == len(self.log)
        hit = 0
        for attempt in Attempt.objects.all().iterator():
            kill = killed.get((str(attempt.worker_id), attempt.worker_child))
            if kill is None:
                assert attempt.outcome != "lost", f"lost without a kill: {attempt.message}"
            elif attempt.outcome == "lost":
                # A claim that was still on its way when its process died is found by the end of its lease alone.
                assert (attempt.loss_cause, attempt.exit_status) in {("exit", -signal.SIGKILL), ("expired", None)}
                assert attempt.started_at <= kill.after + LATE
                assert attempt.finished_at >= kill.before
                hit += 1
            else:
                assert attempt.finished_at <= kill.after + LATE, "it ended after the death of its process"
        return hit


def _finished() -> int:
    return Job.objects.exclude(state__in=UNFINISHED).count()


def _database_time() -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]


def _command(pid: int) -> dict[str, Any]:
    """Return what a child of a worker was started with; empty when it is none, or is gone."""
    try:
        parts = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        found: dict[str, Any] = json.loads(parts[3]) if b"django_jobs.worker.child" in parts else {}
    except (OSError, ValueError, IndexError):
        return {}
    return found


def _children_with_jobs(workers: list[WorkerProcess]) -> dict[tuple[str, int], int]:
    """Return the children that hold attempts, by worker and number, with their process ids."""
    busy = {(str(worker), child) for worker, child in Attempt.objects.filter(outcome=None).values_list(*HOLDER)}
    found = {}
    for pid in [pid for worker in workers for pid in worker.child_pids]:
        config = _command(pid)
        holder = (config.get("worker_id", ""), config.get("child", 0))
        if holder in busy:
            found[holder] = pid
    return found


def run_soak(soak: Soak, workers: list[WorkerProcess], *, seconds: float) -> float:
    """Run everything to its end; returns how long it took."""
    began = time.monotonic()
    for worker in workers:
        worker.start()
    soak.kill_all_along(workers)
    deadline = time.monotonic() + seconds
    while _finished() < soak.jobs:
        assert time.monotonic() < deadline, f"not done: {Counter(Job.objects.values_list('state', flat=True))}"
        pass_time(0.1)
    took = time.monotonic() - began
    for worker in workers:
        worker.term()
        assert worker.wait(seconds=60) == 0
    return took
