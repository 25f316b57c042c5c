"""The number of queries of one enqueue is what the page of the kit says."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_jobs.exceptions import IdempotencyConflictError
from django_jobs.testing import JobsKit
from tests.declared import charge, plain

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "test-kit.md"
ROW = re.compile(
    r"^\| (?P<what>[^|]+) \| (?P<postgresql>\d+) \| (?P<sqlite>\d+) \| (?P<sqlite_alone>\d+) \|$", re.MULTILINE
)
STATED = {found["what"]: found for found in ROW.finditer(PAGE.read_text())}


def conflict() -> None:
    """Ask for the key again, with other arguments."""
    with suppress(IdempotencyConflictError):
        charge.enqueue(order_id=1, amount=2)


CASES: dict[str, Callable[[], object]] = {
    "without a key": plain.enqueue,
    "with a key that is free": lambda: charge.enqueue(order_id=2),
    "a duplicate": lambda: charge.enqueue(order_id=1),
    "a conflict": conflict,
    "with a key that has expired": lambda: charge.enqueue(order_id=3),
}
FRAME = 2  # statements that begin and end an atomic() block; the page says so in words


def test_r68_every_number_of_the_page_is_measured() -> None:
    """R68: the page states no number that is not measured here."""
    assert set(STATED) == set(CASES)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("in_atomic", [False, True])
def test_r68_queries_of_an_enqueue_are_fixed(
    jobs: JobsKit, opened: str, vendor: str, case: str, in_atomic: bool
) -> None:
    """R68: each kind of enqueue asks exactly as often as the page says, in each kind of transaction."""
    charge.enqueue(order_id=3)
    jobs.run_until_idle()
    jobs.clock.tick(charge.options.key_ttl + timedelta(seconds=1))
    charge.enqueue(order_id=1)
    alone = vendor == "sqlite" and opened == "committed" and not in_atomic

    with CaptureQueriesContext(connection) as counted, transaction.atomic() if in_atomic else nullcontext():
        CASES[case]()

    stated = int(STATED[case]["sqlite_alone" if alone else vendor])
    assert len(counted) == stated + (FRAME if in_atomic else 0)
