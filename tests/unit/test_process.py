"""Tests share a process: what one of them moves in the package's memory, the next one finds in its place."""

from __future__ import annotations

import ast
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connections

from django_jobs import clock, faults, job, telemetry
from django_jobs.define import registry
from django_jobs.enqueue import backpressure
from django_jobs.store import notify, statements
from django_jobs.worker.connection import keep_connections
from django_jobs.worker.failures import failures
from django_jobs.worker.outage import outage
from django_jobs.worker.patience import stopping
from django_jobs.worker.watch import watch
from tests import process
from tests.architecture.sources import PACKAGE, Source, sources

MUTABLE = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp, ast.Call)
FAR_AHEAD = 2**42  # milliseconds: in the year 2109
STATELESS_CALLS = {"getLogger", "Lock", "TypeVar"}


def declare() -> None:
    """Declare a handler that nobody takes back."""

    @job(type="tests.left_behind")
    def handler() -> None:
        """Do nothing."""


MOVES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "receivers": (lambda: telemetry.subscribe(print), lambda: list(telemetry._receivers)),
    "counts": (lambda: telemetry.emit("tests.left"), lambda: telemetry.counts["tests.left"]),
    "failed receivers": (lambda: telemetry._failed.add("tests.left"), lambda: set(telemetry._failed)),
    "clock": (lambda: setattr(clock, "_source", lambda: datetime(2030, 1, 1, tzinfo=UTC)), clock.injected),
    "fault points": (lambda: faults.arm(lambda point, using: None), lambda: faults.plan),
    "prepared statements": (statements.prepare_statements, lambda: statements._prepare),
    "notified queues": (lambda: notify._notified.update({("default", "q"): 1.0}), lambda: dict(notify._notified)),
    "sampled queues": (
        lambda: backpressure._samples._taken.update({("default", "q"): None}),
        lambda: dict(backpressure._samples._taken),
    ),  # type: ignore[dict-item]
    "failures": (lambda: failures._told.update(tests=1.0), lambda: dict(failures._told)),
    "outage": (lambda: outage.answered() if outage._since else outage.failed(ValueError("no")), lambda: outage._since),
    "a process that stops": (stopping.set, stopping.is_set),
    "a process in a hurry": (watch.hurry, lambda: watch._hurried),
    "listeners": (lambda: process.wake._listening.append(lambda: None), lambda: list(process.wake._listening)),
    "event types": (
        lambda: process.events.event_type("tests.left", fields={"n": int}),
        lambda: set(process.events._types),
    ),
    "handlers": (declare, lambda: set(registry._jobs)),
    "chores": (
        lambda: process.chores.register(process.chores.Chore(name="tests", is_due=bool, turn=declare)),  # type: ignore[arg-type]
        lambda: set(process.chores._chores),
    ),
    "ids of the future": (
        lambda: process.ids._generator.next(FAR_AHEAD),
        lambda: process.ids._generator._millisecond >= FAR_AHEAD,
    ),
    "kept connections": (lambda: keep_connections("default"), lambda: repr(connections.settings["default"])),
}


@pytest.mark.django_db
@pytest.mark.parametrize("name", MOVES)
def test_what_a_test_moves_is_put_back(name: str) -> None:
    """Each kind of memory is moved, and is what it was when the test is over."""
    move, look = MOVES[name]
    before = look()

    with process.kept():
        move()
        assert look() != before

    assert look() == before


def test_memory_of_the_process_is_known() -> None:
    """Whatever else a module keeps for its process is put back too, or said to be harmless (see tests/process.py)."""
    found = {f"{_module(source)}.{name}" for source in sources() for name in _kept_by(source.tree)}
    objects = {id(item) for item in process.CONTAINERS} | {id(owner) for owner, _ in process.ATTRIBUTES}
    objects |= {
        id(process.events._types),
        id(registry._jobs),
        id(process.adapter._declared),
        id(process.chores._chores),
        id(process.schedules._schedules),
        id(stopping),
    }
    put_back = {name for name in found if id(_value(name)) in objects}

    assert sorted(found - put_back - process.HARMLESS) == []


def _module(source: Source) -> str:
    return ".".join(source.path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def _kept_by(tree: ast.Module) -> list[str]:
    """Return the names in small letters that a module binds to something that can change."""
    names = []
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, MUTABLE):
            continue
        (target,) = node.targets if isinstance(node, ast.Assign) else (node.target,)
        is_small = isinstance(target, ast.Name) and not target.id.strip("_").isupper() and target.id != "__all__"
        if is_small and not (isinstance(node.value, ast.Call) and _called(node.value) in STATELESS_CALLS):
            names.append(target.id)
    return names


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _value(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(__import__(module, fromlist=[attribute]), attribute)
