"""The pages about the test kit tell of what exists, and of all of it."""

from __future__ import annotations

import ast
import re

import pytest

from django_jobs.testing import (
    AttemptReport,
    CrashMatrix,
    CrashReport,
    FakeDownstream,
    FakeReceiver,
    JobsClock,
    JobsFaults,
    JobsKit,
    JobView,
    Pause,
    PostgresProxy,
    RunReport,
    WorkerProcess,
)
from django_jobs.testing.script import Script
from docs import generate

REFERENCE = (generate.DOCS / "reference" / "test-kit.md").read_text()
HOW_TO = (generate.DOCS / "how-to" / "test-your-handlers.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
HELD = {
    "jobs": JobsKit,
    "clock": JobsClock,
    "report": RunReport,
    "fake_downstream": FakeDownstream,
    "jobs_faults": JobsFaults,
    "crash_matrix": CrashMatrix,
    "worker": WorkerProcess,
}
KINDS = [
    *(JobsKit, JobsClock, FakeDownstream, FakeReceiver, Script, RunReport, AttemptReport, JobView, JobsFaults, Pause),
    *(CrashMatrix, CrashReport, WorkerProcess, PostgresProxy),
]


def members(kind: type) -> set[str]:
    """Return the public methods, properties and fields of a class."""
    return {name for name in {*vars(kind), *getattr(kind, "__annotations__", {})} if not name.startswith("_")}


def blocks() -> list[ast.Module]:
    """Return the Python blocks of both pages."""
    return [ast.parse(found) for page in (REFERENCE, HOW_TO) for found in BLOCK.findall(page)]


@pytest.mark.parametrize("kind", KINDS)
def test_r68_the_reference_names_every_member(kind: type) -> None:
    """R68: whatever a test can ask of the kit stands on the page."""
    internal = {
        "publish_batch",
        "close",
        "guarantee",
        "of",
        "take",
        "is_in_force",
        "hold",
        "steps",
        "flows",
        "fault_for",
    }

    assert [name for name in sorted(members(kind) - internal) if not re.search(rf"\b{name}\b", REFERENCE)] == []


def test_r68_the_pages_use_what_exists() -> None:
    """R68: each member that a block of the pages uses is one of the kit."""
    used = {
        (node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", ""), node.attr)
        for tree in blocks()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
    }
    ours = {(holder, name) for holder, name in used if holder in HELD}

    assert {"run_until_idle", "assert_enqueued", "tick", "assert_succeeded"} <= {name for _, name in ours}
    assert {(holder, name) for holder, name in ours if name not in members(HELD[holder]) | {"clock"}} == set()
