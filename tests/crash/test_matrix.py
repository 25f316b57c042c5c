"""The crash matrix: each fault at each point fires, and the job ends as the table says."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.crash.cells import CONNECTION, ENDS, SERVER, Cell, cells
from tests.crash.harness import Matrix
from tests.crash.least import LEAST

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(1800)]

MakeMatrix = Callable[..., Matrix]
# A cell or two of each sort for every run of the tests; they share one worker.
FEW = (
    ("claim.after_commit", "raise", "row"),
    ("effect.after_call", "kill", "paying"),
)
# The kinds that every check of a change runs; the others take minutes each.
EACH = {"kill", "raise"}
SHAPES = pytest.mark.parametrize("shape", [(1, 4), (2, 1), (2, 4)], ids=["1x4", "2x1", "2x4"])
IN_SHAPES = ("raise", "term", *CONNECTION)


def kinds(*names: str) -> pytest.MarkDecorator:
    """Return a test per kind, marked by how long it takes."""
    marked = [pytest.param(name, marks=pytest.mark.slow if name in EACH else pytest.mark.long) for name in names]
    return pytest.mark.parametrize("kind", marked)


def test_few_cells(make_matrix: MakeMatrix, vendor: str) -> None:
    """A worker that is hit in the moments that matter most loses and doubles nothing."""
    matrix = make_matrix()
    for point, kind, name in FEW:
        (cell,) = [each for each in cells(kind, vendor) if (each.point, each.scenario.name) == (point, name)]
        matrix.run(cell)
    matrix.report(least=len(FEW))


@pytest.mark.slow
def test_f01_killed_at_every_point(make_matrix: MakeMatrix, vendor: str) -> None:
    """SIGKILL in one process with one thread."""
    run_all(make_matrix(), "kill", vendor)


@pytest.mark.long
@SHAPES
def test_f01_killed_at_every_point_in_other_shapes(
    make_matrix: MakeMatrix, shape: tuple[int, int], vendor: str
) -> None:
    """SIGKILL with several threads, and with several processes."""
    processes, threads = shape
    run_all(make_matrix(processes=processes, threads=threads), "kill", vendor)


@kinds(*(kind for kind in ENDS if kind != "kill"))
def test_every_point(make_matrix: MakeMatrix, kind: str, vendor: str) -> None:
    """An error of our own code, and a worker that is asked to stop."""
    run_all(make_matrix(), kind, vendor)


@pytest.mark.long
def test_every_point_while_a_process_stands_still(make_matrix: MakeMatrix, vendor: str) -> None:
    """A process that stands for longer than the lease; a second worker takes its job over."""
    run_all(make_matrix(workers=2, short_lease=True), "freeze", vendor)


@pytest.mark.long
@pytest.mark.postgres
def test_every_point_while_one_thread_stands_still(make_matrix: MakeMatrix, vendor: str) -> None:
    """A thread alone; its own process ends its attempt."""
    run_all(make_matrix(workers=2, short_lease=True), "delay", vendor)


@pytest.mark.postgres
@kinds(*SERVER)
def test_every_point_with_a_server(make_matrix: MakeMatrix, kind: str, vendor: str) -> None:
    """A request, a reply or a session is lost, or a statement is refused; SQLite has none of these."""
    run_all(make_matrix(), kind, vendor)


@pytest.mark.long
def test_f31_cancelled_at_every_point(make_matrix: MakeMatrix, vendor: str) -> None:
    """An operator wants the job cancelled: it ends cancelled, or for review, or the operator learns why not."""
    run_all(make_matrix(), "cancel", vendor)


@pytest.mark.long
@pytest.mark.postgres
@SHAPES
@pytest.mark.parametrize("kind", IN_SHAPES)
def test_every_point_in_other_shapes(make_matrix: MakeMatrix, kind: str, shape: tuple[int, int], vendor: str) -> None:
    """The same with several threads and several processes."""
    processes, threads = shape
    run_all(make_matrix(processes=processes, threads=threads), kind, vendor)


def run_all(matrix: Matrix, kind: str, vendor: str) -> None:
    """Run the cells of a kind, or of them those that somebody asks for by CRASH_ONLY, CRASH_TIMES times each."""
    only = os.environ.get("CRASH_ONLY", "")
    table: list[Cell] = cells(kind, vendor) * int(os.environ.get("CRASH_TIMES", "1"))
    for cell in table:
        if only in str(cell):
            matrix.run(cell)
    matrix.report(least=0 if only else LEAST[vendor][kind])
