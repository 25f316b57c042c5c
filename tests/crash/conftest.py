"""Fixtures of the crash matrix: those of the acceptance tests, and one that runs cells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import MakeWorker, make_worker, rows, witness
from tests.acceptance.test_metrics import free_port
from tests.acceptance.workers import Witness
from tests.crash.harness import Matrix

__all__ = ["free_port", "make_worker", "rows", "witness"]


@pytest.fixture
def make_matrix(tmp_path: Path, make_worker: MakeWorker, witness: Witness) -> Callable[..., Matrix]:
    """Make a runner of cells; its workers are gone after the test."""

    def make(**options: Any) -> Matrix:
        return Matrix(folder=tmp_path, make_worker=make_worker, witness=witness, **options)

    return make
