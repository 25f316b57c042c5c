"""The table of fault points and the calls in the code are the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from django_jobs import faults
from django_jobs.faults.points import POINTS, STATEMENTS
from tests.architecture.sources import PACKAGE, called_name, sources


def calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and point of every call of ``reached``; a point that is no literal is empty."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called_name(node) == "reached" and node.args:
            first = node.args[0]
            yield node.lineno, first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


def test_every_call_names_a_point_of_the_table_and_every_point_is_called() -> None:
    """What the code reaches, by itself or around a statement of the store, is what the table has: no more, no less."""
    called = {
        (f"{source.name}:{line}", point)
        for source in sources()
        if source.room not in {"faults", "testing"}  # they carry out what is armed
        for line, point in calls(source.tree)
    }
    around = {point for names in STATEMENTS.values() for point in names if point}

    assert {place for place, point in called if point not in POINTS} == set()
    assert {point for _, point in called} | around == set(POINTS)


def test_every_transition_of_a_job_by_a_worker_or_a_producer_has_points() -> None:
    """The statements with points exist on both databases."""
    for vendor in ("postgresql", "sqlite"):
        folder = PACKAGE / "store" / "sql" / vendor
        assert [name for name in STATEMENTS if not (folder / f"{name}.sql").exists()] == []


def test_look_finds_calls_whatever_they_name() -> None:
    """A name that is put together while the program runs is seen, and is none of the table."""
    code = "faults.reached('claim.before', using=a)\nreached(f'{name}.before', using=a)"

    assert [point for _, point in calls(ast.parse(code))] == ["claim.before", ""]


@pytest.mark.parametrize("point", ["", "claim.befo", "nothing"])
def test_unknown_point_cannot_be_armed(point: str) -> None:
    """A test that names no point of the table is told so at once."""
    with pytest.raises(ValueError, match="There is no fault point"), faults.armed(point, print):
        pass
