"""The results as JSON and as tables in Markdown, one table per scenario."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.recovery import environments
from tests.benchmarks.recovery.systems import SYSTEMS, find

Result = dict[str, Any]

TITLES = {
    "kill": "A worker is killed",
    "kill-child": "The process that runs a handler is killed",
    "zombie": "A worker freezes and wakes up",
    "connections": "Connections are ended by the server",
    "restart": "The database restarts",
    "poison": "A job kills its process",
}


def head(command: str, server: str) -> Result:
    """Say when, where and with what."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": command,
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release().partition('-')[0]}",
        "postgresql": server,
        "versions": {system.name: environments.versions(system) for system in SYSTEMS if _is_here(system.name)},
    }


def _is_here(name: str) -> bool:
    system = find(name)
    return not system.requirements or any(environments.CACHE.glob(f"{name}-*/done"))


def write(folder: Path, about: Result) -> str:
    """Gather the results in a folder into ``results.json`` and ``results.md``, and return the latter."""
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*/result.json"))]
    (folder / "results.json").write_text(json.dumps({**about, "runs": runs}, indent=1) + "\n")
    text = tables(runs)
    (folder / "results.md").write_text(text)
    return text


def tables(runs: Sequence[Result]) -> str:
    """Return a table for each scenario that was run."""
    order = [system.name for system in SYSTEMS]
    parts = []
    for scenario, title in TITLES.items():
        found = [run for run in runs if run["scenario"] == scenario]
        found.sort(key=lambda run: (order.index(run["system"]), run["variant"], run["seed"]))
        if found:
            parts.append(f"### {title}\n\n{_table(found, COLUMNS[scenario])}")
    return "\n\n".join(parts) + "\n"


def _table(runs: Sequence[Result], columns: dict[str, Callable[[Result], str]]) -> str:
    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    for run in runs:
        if "error" in run:
            lines.append(f"{_who(run)} | could not be run: {run['error']}" + " |" * (len(columns) - 2))
        else:
            lines.append(" | ".join(cell(run) for cell in columns.values()))
    return "\n".join(f"| {line} |" for line in lines)


def _who(run: Result) -> str:
    return f"{run['system'].replace('ours', 'this package')}, {run['variant']}"


def _recovery(run: Result) -> str:
    found = run["recovery"]
    told = f"{found['min']} / {found['median']} / {found['max']}" if found else "–"
    return f"{told}; {run['never']} never within {run['watched']} s" if run["never"] else told


def _taken_over(run: Result) -> str:
    waited = run["taken_over_after"]
    return f"{waited} s" if waited is not None else f"never within {run['watched']:.0f} s"


def _poison_end(run: Result) -> str:
    return f"still open after {run['watched']} s" if run["stuck"] else f"set aside within {run['watched']} s"


def _number(name: str) -> Callable[[Result], str]:
    return lambda run: str(run[name])


HIT = {
    "System": _who,
    "seed": _number("seed"),
    "faults": _number("faults"),
    "hit before / after the effect / at the end": lambda run: (
        f"{run['hit_before']} / {run['hit_after']} / {run['hit_at_end']}"
    ),
    "stuck": _number("stuck"),
    "failed": _number("failed"),
    "lost effects": _number("lost_effects"),
    "duplicate effects": _number("extra_effects"),
    "rows lost / twice": lambda run: f"{run['lost_rows']} / {run['duplicate_rows']}",
    "recovery min / median / max (s)": _recovery,
}
EXITS = {"worker exits": _number("worker_exits")}
COLUMNS: dict[str, dict[str, Callable[[Result], str]]] = {
    "kill": HIT,
    "kill-child": {**HIT, **EXITS},
    "connections": {**HIT, **EXITS},
    "restart": {**HIT, **EXITS},
    "zombie": {
        "System": _who,
        "seed": _number("seed"),
        "taken over after": _taken_over,
        "the sleeper's finish was accepted": lambda run: "**yes**" if run["stale_finish"] else "no",
        "effects": lambda run: str(1 + run["extra_effects"] - run["lost_effects"]),
        "rows": lambda run: "twice" if run["duplicate_rows"] else "none" if run["lost_rows"] else "once",
        "open at the end": _number("stuck"),
    },
    "poison": {
        "System": _who,
        "seed": _number("seed"),
        "process deaths": _number("poison_deaths"),
        "the poison job": _poison_end,
        "normal jobs: lost / run again": lambda run: f"{run['lost_effects']} / {run['repeated_executions']}",
        "duplicate effects": _number("extra_effects"),
        "worker exits": _number("worker_exits"),
    },
}
