"""The ledger on its own: what a reset and a close do to requests that are still under way."""

from __future__ import annotations

import sqlite3

import pytest

from testproject.payments.faults import ForgottenError
from testproject.payments.ledger import Ledger
from testproject.payments.rules import Incoming, Movement

INCOMING = Incoming(path="/charges", key="k", raw=b"{}")
MOVEMENT = Movement(kind="charge", order_id=7, amount="12.50", currency="EUR", operation="j")


@pytest.fixture
def ledger(tmp_path):
    """Return an open ledger."""
    ledger = Ledger(tmp_path / "ledger.db")
    yield ledger
    ledger.close()


@pytest.mark.parametrize("end", ["reset", "close"])
def test_request_from_before_the_end_applies_nothing(ledger, end):
    """A request that arrived before a reset or a close can change nothing afterwards."""
    number = ledger.arrive(method="POST", path="/charges", order_id=7, incoming=INCOMING)

    getattr(ledger, end)()

    with pytest.raises(ForgottenError):
        ledger.apply(number, MOVEMENT, incoming=INCOMING)


def test_failed_change_is_rolled_back(ledger):
    """A key that is taken undoes the whole charge, and the ledger goes on."""
    number = ledger.arrive(method="POST", path="/charges", order_id=7, incoming=INCOMING)
    ledger.apply(number, MOVEMENT, incoming=INCOMING)

    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        ledger.apply(number, MOVEMENT, incoming=INCOMING)

    assert ledger.report()["applied_per_order"] == {"7": 1}
    assert ledger.arrive(method="GET", path="/charges", order_id=7) > number


def test_numbers_go_on_after_a_reset(ledger):
    """A request number is never given twice, so that an old answer cannot pass for a new one."""
    before = ledger.arrive(method="GET", path="/charges", order_id=7)

    ledger.reset()

    assert ledger.arrive(method="GET", path="/charges", order_id=7) > before
