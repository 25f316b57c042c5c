"""Hit every system with the same faults and print what became of the jobs.

python -m tests.benchmarks.recovery [--system NAME …] [--variant NAME …] [--scenario NAME …] [--seed N …]
    [--jobs N] [--kills N] [--workers N] [--settle SECONDS] [--at-once N] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.benchmarks.recovery import environments, report
from tests.benchmarks.recovery.run import Plan, execute
from tests.benchmarks.recovery.scenarios import SCENARIOS
from tests.benchmarks.recovery.systems import SYSTEMS
from tests.clusters import Cluster, find_binaries


def main() -> None:
    """Read the arguments, run what was asked for, and write the tables."""
    arguments = _arguments()
    folder = Path(arguments.out)
    plans = [
        Plan(
            system=system,
            variant=variant,
            scenario=scenario,
            seed=seed,
            workers=arguments.workers,
            jobs=arguments.jobs,
            faults=arguments.kills,
            settle=arguments.settle,
        )
        for scenario in arguments.scenario or SCENARIOS
        for system in SYSTEMS
        for variant in system.variants
        for seed in arguments.seed or [1]
        if system.name in (arguments.system or [system.name])
        if variant.name in (arguments.variant or [variant.name])
    ]
    _install({plan.system.name for plan in plans})
    with Cluster(binaries=find_binaries()[0], settings={"max_connections": "500"}) as keeper:
        # Each run has a thread: it waits for its turn to strike, and then for recoveries beside the others.
        with ThreadPoolExecutor(max_workers=arguments.at_once) as pool:
            list(pool.map(lambda plan: _run(plan, keeper, folder), plans))
        about = report.head(" ".join(["python -m tests.benchmarks.recovery", *sys.argv[1:]]), keeper.binaries.version)
    print(report.write(folder, about))


def _run(plan: Plan, keeper: Cluster, folder: Path) -> None:
    print(f"begins: {plan.name}", flush=True)
    threading.current_thread().name = plan.name
    try:
        result: dict[str, Any] = execute(plan, keeper, folder)
    except Exception as error:  # a run that cannot be made is a result, and the others go on
        result = {
            "system": plan.system.name,
            "variant": plan.variant.name,
            "scenario": plan.scenario,
            "seed": plan.seed,
            "error": f"{type(error).__name__}: {error}"[:300].replace("\n", " "),
        }
    (folder / plan.name).mkdir(parents=True, exist_ok=True)
    (folder / plan.name / "result.json").write_text(json.dumps(result, indent=1))
    print(f"ended: {json.dumps(result)}", flush=True)


def _install(names: set[str]) -> None:
    for system in SYSTEMS:
        if system.name in names:
            environments.programs(system)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", action="append", choices=[system.name for system in SYSTEMS])
    parser.add_argument("--variant", action="append")
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS))
    parser.add_argument("--seed", action="append", type=int)
    parser.add_argument("--jobs", type=int, default=0, help="0: the scenario's own number")
    parser.add_argument("--kills", type=int, default=0, help="faults; 0: the scenario's own number")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--settle", type=float, default=0, help="seconds; 0: longer than the system's own waits")
    parser.add_argument("--at-once", type=int, default=6, help="runs beside each other; one at a time strikes")
    parser.add_argument("--out", default=str(environments.CACHE / "results"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
