"""The crash matrix: each fault at each point fires, and the job ends as the table says."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.crash.cells import CONNECTION, LEAST, PROCESS, Cell, cells
from tests.crash.harness import Matrix

pytestmark = pytest.mark.django_db(transaction=True)

MakeMatrix = Callable[..., Matrix]
# A cell or two of each sort for every run of the tests; they share one worker.
FEW = (
    ("claim.after_commit", "raise", "row"),
    ("effect.after_call", "kill", "paying"),
)
# The kinds that every check of a change runs; the others take minutes each.
EACH = dict.fromkeys(("kill", "raise", "lose_reply"), pytest.mark.slow)


def test_few_cells(make_matrix: MakeMatrix, vendor: str) -> None:
    """A worker that is hit in the moments that matter most loses and doubles nothing."""
    matrix = make_matrix()
    for point, kind, name in FEW:
        (cell,) = [each for each in cells(kind, vendor) if (each.point, each.scenario.name) == (point, name)]
        matrix.run(cell)
    matrix.report(least=len(FEW))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=EACH.get(kind, pytest.mark.long)) for kind in PROCESS])
def test_every_point(make_matrix: MakeMatrix, kind: str, vendor: str) -> None:
    """Every cell of one kind; a frozen process has a second worker beside it, which takes its job over."""
    frozen = kind == "freeze"
    run_all(make_matrix(workers=2 if frozen else 1, short_lease=frozen), cells(kind, vendor), least=LEAST[vendor][kind])


@pytest.mark.postgres
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=EACH.get(kind, pytest.mark.long)) for kind in CONNECTION])
def test_every_point_with_a_lost_connection(make_matrix: MakeMatrix, kind: str, vendor: str) -> None:
    """Every cell in which a request, a reply or the session of one thread is lost; SQLite has none of these."""
    run_all(make_matrix(), cells(kind, vendor), least=LEAST[vendor][kind])


@pytest.mark.long
@pytest.mark.postgres
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("shape", [(1, 4), (2, 1), (2, 4)], ids=["1x4", "2x1", "2x4"])
@pytest.mark.parametrize("kind", ["kill", "raise", "term", *CONNECTION])
def test_every_point_in_other_shapes(make_matrix: MakeMatrix, kind: str, shape: tuple[int, int], vendor: str) -> None:
    """The same with several threads and several processes."""
    processes, threads = shape
    run_all(make_matrix(processes=processes, threads=threads), cells(kind, vendor), least=LEAST[vendor][kind])


def run_all(matrix: Matrix, table: list[Cell], *, least: int) -> None:
    """Run the cells that somebody asks for by CRASH_ONLY, or else all."""
    only = os.environ.get("CRASH_ONLY", "")
    for cell in table:
        if only in str(cell):
            matrix.run(cell)
    matrix.report(least=0 if only else least)
