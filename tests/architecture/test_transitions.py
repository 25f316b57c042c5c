"""One table of transitions, and everything that is derived from it by name."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from django_jobs.domain.states import BY_NAME, NOT_BUILT, TRANSITIONS
from tests.architecture.sources import PACKAGE

BUILT = sorted({transition.name for transition in TRANSITIONS} - NOT_BUILT)
SQL = PACKAGE / "store" / "sql"
VENDORS = ("postgresql", "sqlite")
HEADER = ("-- purpose:", "-- guard:", "-- index:")


def sql_files(vendor: str) -> list[Path]:
    """Return every statement of a vendor; fail when there is none."""
    found = sorted((SQL / vendor).rglob("*.sql"))
    assert found, f"{SQL / vendor} holds no SQL file"
    return found


def test_names_left_for_later_are_transitions() -> None:
    """What is declared as not built yet is part of the table, and something is built."""
    assert set(BY_NAME) >= NOT_BUILT
    assert BUILT


@pytest.mark.parametrize("vendor", VENDORS)
def test_each_transition_has_its_statement_and_no_other_stands_beside_it(vendor: str) -> None:
    """The files directly in a vendor's folder are the built transitions, by name; other statements have folders."""
    names = [path.stem for path in sql_files(vendor) if path.parent == SQL / vendor]

    assert sorted(names) == BUILT


def test_each_statement_exists_for_both_databases() -> None:
    """No statement is written for one database alone."""
    files = {vendor: [path.relative_to(SQL / vendor).as_posix() for path in sql_files(vendor)] for vendor in VENDORS}

    assert files["postgresql"] == files["sqlite"]


@pytest.mark.parametrize("name", BUILT)
def test_each_transition_has_its_store_function(name: str) -> None:
    """The store offers a documented function under the transition's name."""
    function = getattr(importlib.import_module("django_jobs.store"), name, None)

    assert callable(function), f"django_jobs.store.{name} is missing"
    assert function.__doc__


def test_transitions_left_for_later_have_no_store_function() -> None:
    """A transition that is built leaves the list of those that are not."""
    store = importlib.import_module("django_jobs.store")

    assert [name for name in sorted(NOT_BUILT) if callable(getattr(store, name, None))] == []


@pytest.mark.parametrize("vendor", VENDORS)
def test_each_statement_begins_with_purpose_guard_and_index(vendor: str) -> None:
    """The first three lines of a statement say what it is for, what guards it and which index it must use."""
    wrong = []
    for path in sql_files(vendor):
        lines = path.read_text().splitlines()[: len(HEADER)]
        told = [line.removeprefix(start).strip() for line, start in zip(lines, HEADER, strict=False)]
        if len(lines) < len(HEADER) or not all(map(str.startswith, lines, HEADER)) or not all(told):
            wrong.append(path.relative_to(SQL).as_posix())

    assert wrong == []
