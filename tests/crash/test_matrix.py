"""The crash matrix: each fault at each point fires, and the job ends as the table says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crash.cells import KINDS, cells
from tests.crash.harness import Matrix

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_every_point(make_matrix: Callable[..., Matrix], kind: str, vendor: str) -> None:
    """Every cell of one kind, one process with one thread."""
    frozen = kind == "freeze"
    matrix = make_matrix(workers=2 if frozen else 1, short_lease=frozen)
    for cell in cells(kind, vendor):
        matrix.run(cell)
    report(matrix)


def report(matrix: Matrix) -> None:
    """Print what was run, and fail with what did not go as the table says."""
    print(f"\n{len(matrix.ran)} cells run, {len(matrix.left_out)} not applicable, {len(matrix.failed)} failed")
    for cell in matrix.left_out:
        print(f"  not applicable: {cell}: {cell.why_not}")
    if matrix.failed:
        pytest.fail("\n\n".join(f"{name}: {why}" for name, why in matrix.failed.items()), pytrace=False)
