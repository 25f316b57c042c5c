"""Receivers, operators and pruning that are hit: what they did is there once, or not at all and the next try does it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.act_cells import LEAST, ActCell, act_cells
from tests.crash.act_harness import ActMatrix
from tests.crash.cells import CONNECTION

pytestmark = pytest.mark.django_db(transaction=True)

MakeActs = Callable[[], ActMatrix]


@pytest.fixture
def make_acts(rows: object, database_url: str, tmp_path: Path) -> MakeActs:
    """Make a runner of acts."""
    return lambda: ActMatrix(folder=tmp_path, database_url=database_url)


@pytest.mark.long
def test_act_whose_own_code_failed(make_acts: MakeActs, vendor: str) -> None:
    """Every act at every point where our own code raises."""
    run_all(make_acts(), act_cells("raise", vendor), least=LEAST[vendor]["raise"])


@pytest.mark.long
@pytest.mark.postgres
@pytest.mark.parametrize("kind", CONNECTION)
def test_act_that_lost_its_connection(make_acts: MakeActs, kind: str, vendor: str) -> None:
    """Every act at every point where a request, a reply or the session is lost: whoever asks again learns the truth."""
    run_all(make_acts(), act_cells(kind, vendor), least=LEAST[vendor][kind])


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["kill", "term", "freeze"])
def test_act_of_a_process_that_ended_or_stood_still(make_acts: MakeActs, kind: str, vendor: str) -> None:
    """Every act in a process of its own that is killed, asked to end, or frozen until somebody else has done it."""
    run_all(make_acts(), act_cells(kind, vendor), least=LEAST[vendor][kind])


def run_all(matrix: ActMatrix, table: list[ActCell], *, least: int) -> None:
    """Run the cells that somebody asks for by CRASH_ONLY, or else all."""
    only = os.environ.get("CRASH_ONLY", "")
    for cell in table:
        if only in str(cell):
            matrix.run(cell)
    matrix.report(least=0 if only else least)
