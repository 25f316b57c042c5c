"""One run: a system, one of its variants, a scenario and a seed; from empty servers to a result."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.recovery.judgement import judge
from tests.benchmarks.recovery.scenarios import SCENARIOS
from tests.benchmarks.recovery.stage import Stage, stage
from tests.benchmarks.recovery.systems import System, Variant
from tests.clusters import Cluster, find_binaries

# So many runs at most start workers and strike at the same time; the others wait, or wait for recoveries.
STRIKING = threading.BoundedSemaphore(int(os.environ.get("RECOVERY_STRIKING", "1")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one run is asked to do; ``jobs`` and ``faults`` of 0 mean the scenario's own, ``settle`` of 0 the variant's."""

    system: System
    variant: Variant
    scenario: str
    seed: int
    workers: int = 4
    jobs: int = 0
    faults: int = 0
    settle: float = 0

    @property
    def name(self) -> str:
        """What its files are called."""
        words = f"{self.system.name}-{self.variant.name}-{self.scenario}-s{self.seed}"
        return "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in words)

    @property
    def patience(self) -> float:
        """How long nothing may move before open jobs count as stuck."""
        return self.settle or self.variant.settle


def execute(plan: Plan, keeper: Cluster, folder: Path) -> dict[str, Any]:
    """Run it and return its result; the workers' output stays in ``folder``."""
    began, load = time.time(), os.getloadavg()[0]
    shutil.rmtree(folder / plan.name, ignore_errors=True)
    (folder / plan.name).mkdir(parents=True)
    with Cluster(binaries=find_binaries()[0]) as cluster:
        told = _play(plan, (cluster, keeper), folder / plan.name)
    return {
        "system": plan.system.name,
        "variant": plan.variant.name,
        "scenario": plan.scenario,
        "seed": plan.seed,
        "workers": plan.workers,
        "patience": plan.patience,
        "began": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(began)),
        "seconds": round(time.time() - began, 1),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        **told,
    }


def _play(plan: Plan, servers: tuple[Cluster, Cluster], folder: Path) -> dict[str, Any]:
    strike, jobs, faults = SCENARIOS[plan.scenario]
    asked = {"jobs": plan.jobs or jobs, "faults": plan.faults or faults}
    with stage(plan.system, plan.variant, servers=servers, workers=plan.workers, seed=plan.seed, folder=folder) as made:
        with STRIKING:
            made.start()
            _warm_up(made)
            if plan.scenario not in LONG_WAITS:
                told = strike(made, **asked)
        if plan.scenario in LONG_WAITS:
            told = strike(made, **asked)
        return _outcome(plan, made, told, folder)


# Scenarios that wait for a takeover in their midst: others may strike meanwhile.
LONG_WAITS = {"zombie", "poison"}


def _warm_up(made: Stage) -> None:
    """Let the workers come up: a job each, and what else a worker does first."""
    made.feed(len(made.workers))
    made.settle(quiet=60, longest=90)


def _outcome(plan: Plan, made: Stage, told: dict[str, Any], folder: Path) -> dict[str, Any]:
    if plan.scenario == "poison":
        longest = plan.settle or plan.variant.poison
        made.settle(quiet=longest, longest=longest)
        told["watched"] = round(time.monotonic() - told.pop("began"))
    else:
        still = made.settle(quiet=plan.patience, longest=4 * plan.patience)
        told.setdefault("watched", round(still))
    evidence = made.evidence()
    kept = {"executions": evidence.executions, "requests": evidence.requests, "hits": evidence.hits}
    (folder / "evidence.json").write_text(json.dumps({name: [asdict(x) for x in seen] for name, seen in kept.items()}))
    return {**told, **judge(evidence).as_dict(), "worker_exits": made.exits}
