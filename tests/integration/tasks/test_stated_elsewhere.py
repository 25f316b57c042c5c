"""Each statement of django-tasks-db's tests is shown by a test here, or named as a difference to its users."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.docs.moving import text_of
from tests.integration.tasks.stated_elsewhere import DIFFERENT, INSIDE, SAME

HERE = Path(__file__).parent.parent
STATED = [*" ".join([*SAME, *DIFFERENT, INSIDE]).split()]
TWICE = {"unknown_backend", "incorrect_backend", "invalid_task_path", "missing_task_path"}  # of two of its classes


def functions(path: Path) -> set[str]:
    """Return the names of a module's tests."""
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("place", sorted(set(SAME.values())))
def test_what_is_the_same_has_its_test(place: str) -> None:
    """The test that shows it is there."""
    path, name = place.split("::")
    assert name in functions(HERE / path)


@pytest.mark.parametrize("told", DIFFERENT.values())
def test_what_is_different_is_told(told: str) -> None:
    """The page about the move has it."""
    assert told in text_of("django-tasks-db")


def test_nothing_is_left_out() -> None:
    """Its 95 tests are all looked at, each in one place."""
    assert len(STATED) == len(set(STATED))
    assert len(STATED) + len(TWICE) == 95
    assert set(STATED) >= TWICE
