"""The crash matrix of deliveries: each fault at each point fires, and the event takes the course of the table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.test import override_settings

from django_jobs.outbox.destinations import routes
from django_jobs.store.subscriptions import sync
from tests.acceptance.conftest import MakeWorker
from tests.crash.cells import CONNECTION, PROCESS
from tests.crash.outbox_cells import LEAST, OutboxCell, outbox_cells
from tests.crash.outbox_harness import OutboxMatrix, destinations_of
from tests.receivers import Receiver

pytestmark = pytest.mark.django_db(transaction=True)

MakeMatrix = Callable[..., OutboxMatrix]


@pytest.fixture
def make_outbox(make_worker: MakeWorker, tmp_path: Path) -> Iterator[MakeMatrix]:
    """Make a runner of cells whose workers deliver to a receiver of this test."""
    with Receiver() as receiver:
        found = {**settings.DJANGO_JOBS, "DESTINATIONS": destinations_of(receiver)}
        with override_settings(DJANGO_JOBS=found):
            sync(routes(), using="default")
            yield lambda **options: OutboxMatrix(folder=tmp_path, make_worker=make_worker, receiver=receiver, **options)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", PROCESS)
def test_every_point_of_a_delivery(make_outbox: MakeMatrix, kind: str, vendor: str) -> None:
    """Every cell of one kind; a frozen process has a second worker beside it, which delivers in its place."""
    matrix = make_outbox(workers=2 if kind == "freeze" else 1)
    run_all(matrix, outbox_cells(kind, vendor), least=LEAST[vendor][kind])


@pytest.mark.long
@pytest.mark.postgres
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", CONNECTION)
def test_every_point_of_a_delivery_with_a_lost_connection(make_outbox: MakeMatrix, kind: str, vendor: str) -> None:
    """Every cell in which a request, a reply or the session of the dispatcher is lost; SQLite has none of these."""
    run_all(make_outbox(), outbox_cells(kind, vendor), least=LEAST[vendor][kind])


def run_all(matrix: OutboxMatrix, table: list[OutboxCell], *, least: int) -> None:
    """Run the cells that somebody asks for by CRASH_ONLY, or else all."""
    only = os.environ.get("CRASH_ONLY", "")
    for cell in table:
        if only in str(cell):
            matrix.run(cell)
    matrix.report(least=0 if only else least)
