"""The clock that tests put in, and the clock that counts through a suspended machine."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from django_jobs import clock

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def test_nothing_is_injected_in_production() -> None:
    """Then the database's clock counts, and the process's own is aware."""
    assert clock.injected() is None
    assert clock.now().tzinfo is UTC


def test_override_holds_for_its_block() -> None:
    """Blocks nest, and the former clock comes back, also after an error."""
    with clock.override(lambda: NOON):
        assert clock.now() == clock.injected() == NOON
        with clock.override(lambda: NOON + timedelta(hours=1)):
            assert clock.now() == NOON + timedelta(hours=1)
        with pytest.raises(ZeroDivisionError), clock.override(lambda: NOON - timedelta(hours=1)):
            _ = 1 / 0
        assert clock.now() == NOON
    assert clock.injected() is None


def test_override_is_asked_each_time() -> None:
    """A test moves the clock by what its function returns."""
    moments = iter([NOON, NOON + timedelta(seconds=1)])
    with clock.override(lambda: next(moments)):
        assert [clock.now(), clock.now()] == [NOON, NOON + timedelta(seconds=1)]


def test_boot_seconds_only_rise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no such clock, the monotonic one stands in."""
    first = clock.boot_seconds()
    assert clock.boot_seconds() >= first
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    assert abs(clock.boot_seconds() - time.monotonic()) < 60
