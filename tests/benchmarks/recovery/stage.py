"""One run's stage: a server that may be broken, a witness that is not, four workers, and a hand that feeds them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from tests.acceptance.workers import pass_time, wait_for
from tests.benchmarks.recovery import environments
from tests.benchmarks.recovery.judgement import Evidence, Execution, Hit
from tests.benchmarks.recovery.systems import System, Variant
from tests.benchmarks.recovery.witness import Witness
from tests.benchmarks.recovery.workers import Feeder, Worker
from tests.clusters import Cluster

NAME = "recovery_harness"
RESTART_DELAY = 1.0  # seconds from one start to the next
ROWS = "CREATE TABLE business_row (id bigserial PRIMARY KEY, key text NOT NULL, pid int NOT NULL)"


@dataclass(slots=True, kw_only=True)
class Stage:
    """What a scenario acts on; see :func:`stage`."""

    system: System
    variant: Variant
    cluster: Cluster
    witness: Witness
    workers: list[Worker]
    feeder: Feeder
    rng: random.Random
    keys: list[str] = field(default_factory=list)
    hits: list[Hit] = field(default_factory=list)
    exits: int = 0
    _states: psycopg.Connection | None = None

    def start(self) -> None:
        """Start the workers."""
        for worker in self.workers:
            worker.start()

    def feed(self, count: int, *, name: str = "job") -> list[str]:
        """Enqueue so many further jobs and return their keys."""
        keys = [f"{name}{len(self.keys) + number:05d}" for number in range(count)]
        self.feeder.feed(keys)
        self.keys += keys
        return keys

    def query(self, sql: str) -> list[tuple]:
        """Read from the system's database, across restarts of the server."""
        for _ in range(300):
            try:
                if self._states is None:
                    self._states = psycopg.connect(self.cluster.url(), autocommit=True, application_name=NAME)
                return self._states.execute(sql).fetchall()
            except psycopg.OperationalError:
                self._states = None
                pass_time(0.2)
        raise RuntimeError("the database did not come back within a minute")

    def states(self) -> dict[str, int]:
        """Return how many jobs are in each state, in the system's own words."""
        return dict(self.query(self.system.states))

    def open_jobs(self) -> int:
        """Return how many jobs are not finished."""
        return sum(count for state, count in self.states().items() if state in self.system.open)

    def running(self, worker: Worker | None = None) -> list[Execution]:
        """Return the executions under way in this worker, or in any that lives."""
        pids = {pid for one in ([worker] if worker else self.workers) for pid in one.pids()}
        return [execution for execution in self.witness.executions(running=True) if execution.pid in pids]

    def busy_worker(self, *, seconds: float = 60) -> Worker | None:
        """Wait until handlers run and return one of their workers, by chance; None when none ran in time."""

        def look() -> list[Worker]:
            self.restart_dead()
            return [worker for worker in self.workers if worker.is_running() and self.running(worker)]

        try:
            found = wait_for(look, seconds=seconds, what="a busy worker")
        except AssertionError:
            return None
        return self.rng.choice(found)

    def restart_dead(self) -> None:
        """Start what ended by itself, as a process manager does, and count it."""
        for worker in self.workers:
            if not worker.is_running() and worker.age > RESTART_DELAY:
                self.exits += 1
                worker.kill()
                worker.start()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with dead workers started again."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            self.restart_dead()
            pass_time(min(0.2, max(0.0, ends - time.monotonic())))

    def settle(self, *, quiet: float, longest: float) -> float:
        """Wait until nothing is open, or nothing has moved for ``quiet`` seconds; return how long nothing had moved."""
        ends = time.monotonic() + longest
        last, since = None, time.monotonic()
        while time.monotonic() < ends:
            self.restart_dead()
            seen = (self.witness.counts(), sorted(self.states().items()))
            if seen != last:
                last, since = seen, time.monotonic()
            still = time.monotonic() - since
            if still > quiet or (still > 3 and self.open_jobs() == 0 and not self.running()):
                break
            pass_time(0.25)
        return time.monotonic() - since

    def evidence(self) -> Evidence:
        """Return what the run left."""
        return Evidence(
            keys=self.keys,
            executions=self.witness.executions(),
            requests=self.witness.requests(),
            rows=[row[0] for row in self.query("SELECT key FROM business_row")],
            states=self.states(),
            open_states=self.system.open,
            failed_states=self.system.failed,
            hits=self.hits,
        )

    def close(self) -> None:
        """End all processes."""
        for worker in self.workers:
            worker.kill()
        self.feeder.close()
        if self._states is not None:
            self._states.close()
        self.witness.close()


@contextmanager
def stage(
    system: System,
    variant: Variant,
    *,
    servers: tuple[Cluster, Cluster],
    workers: int,
    seed: int,
    folder: Path,
) -> Iterator[Stage]:
    """Set everything up for one run but the workers; ``servers`` are the one that may be broken and the one of the witness."""
    cluster, keeper = servers
    database = f"witness_{os.urandom(4).hex()}"
    with psycopg.connect(keeper.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}")
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute(ROWS)
    bin_folder = environments.programs(system)
    env = _environment(system, variant, database=cluster.url(), witness=keeper.url(database))
    log = folder / "workers.log"
    _prepare(system, bin_folder, env, log)
    command = [bin_folder / system.worker[0], *system.worker[1:]]
    made = Stage(
        system=system,
        variant=variant,
        cluster=cluster,
        witness=Witness(keeper.url(database)),
        workers=[Worker(command=command, env=env, log=log) for _ in range(workers)],
        feeder=Feeder(bin_folder / "python", env, log),
        rng=random.Random(seed),
    )
    try:
        yield made
    finally:
        made.close()


def _environment(system: System, variant: Variant, *, database: str, witness: str) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    settings = {
        "INSTALLED_APPS": [*system.apps, "recovery_site.apps.SiteConfig"],
        **system.settings,
        **variant.settings,
    }
    return {
        **inherited,
        "PYTHONPATH": f"{environments.SITE}:{environments.ROOT}" if not system.requirements else str(environments.SITE),
        "PYTHONUNBUFFERED": "1",
        "RECOVERY_DATABASE": database,
        "RECOVERY_WITNESS": witness,
        "RECOVERY_ADAPTER": system.adapter,
        "RECOVERY_VARIANT": variant.name,
        "RECOVERY_SETTINGS": json.dumps(settings),
        **({"DJANGO_SETTINGS_MODULE": "recovery_site.settings"} if system.uses_django else _libpq(database)),
        **variant.env,
    }


def _libpq(url: str) -> dict[str, str]:
    """Return the variables by which a program without settings finds the server."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
    return {variable: str(parts[name]) for name, variable in names.items()}


def _prepare(system: System, bin_folder: Path, env: dict[str, str], log: Path) -> None:
    prepare = system.prepare or ("python", "-m", "django", "migrate", "-v0")
    with log.open("ab") as output:
        subprocess.run(
            [bin_folder / prepare[0], *prepare[1:]], env=env, check=True, timeout=300, stdout=output, stderr=output
        )
