"""One project, five stock tasks, three backends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


def told_by(backend: str, folder: Path) -> dict[str, Any]:
    """Run the project on a backend, with that one's own worker, and return what became of its tasks."""
    env = {
        **os.environ,
        "PYTHONPATH": ".",
        "FIVE_BACKEND": backend,
        "FIVE_DATABASE": str(folder / f"{backend}.sqlite3"),
    }
    command = [sys.executable, "-m", "tests.variants.five_tasks"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.parametrize("other", ["immediate", "django_tasks_db"])
def test_five_tasks_run_unchanged_on_other_backends(tmp_path: Path, other: str) -> None:
    """Status, value, errors, attempts, arguments and rows are what Django's and django-tasks-db's backend leave."""
    ours = told_by("django_jobs", tmp_path)

    assert ours == told_by(other, tmp_path)
    assert [one["status"] for one in ours["results"]] == [*["SUCCESSFUL"] * 4, "FAILED"]
    assert ours["rows"] == ["noted", "noted by a coroutine", "relayed"]
