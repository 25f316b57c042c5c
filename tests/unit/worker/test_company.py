"""Who may begin beside whom in one child."""

from __future__ import annotations

import pytest

from django_jobs import clock
from django_jobs.domain.states import Alone
from django_jobs.worker.company import WISH_LASTS, Company


class Side:
    """A company whose two sides tell when they are woken; ``jobs`` says whether jobs run."""

    def __init__(self, *, makes_room: bool = True) -> None:
        self.jobs = False
        self.woken: list[str] = []
        self.company = Company(
            is_busy=lambda: self.jobs,
            wake_jobs=lambda: self.woken.append("jobs"),
            makes_room=makes_room,
            alone=Alone.CHILD,
        )
        self.company.wake_deliveries = lambda: self.woken.append("deliveries")

    def begins(self, *, suspect: bool) -> Alone | None:
        """Deliver nothing for a moment; returns how much company that had."""
        with self.company.delivering(suspect=suspect) as alone:
            return alone

    def claims(self, *, isolated: bool = False) -> bool:
        """Go once round the loop of jobs."""
        if not self.company.may_claim():
            return False
        self.company.claimed(isolated=isolated)
        return True


def test_jobs_and_deliveries_run_beside_each_other() -> None:
    """Neither waits for the other as long as nobody is suspected."""
    side = Side()
    side.jobs = True
    with side.company.delivering(suspect=False) as alone:
        assert alone is Alone.NO
        assert side.claims()


def test_suspected_delivery_begins_only_without_jobs_and_keeps_them_out() -> None:
    """It waits for running jobs and for a claim that is under way; while it is delivered no job is claimed."""
    side = Side()
    side.jobs = True
    assert side.begins(suspect=True) is None
    side.jobs = False
    with side.company.delivering(suspect=True) as alone:
        assert alone is Alone.CHILD
        assert not side.claims()
    assert side.woken == ["jobs"]
    assert side.company.may_claim()
    assert side.begins(suspect=True) is None, "a claim is under way"


def test_jobs_make_room_for_a_delivery_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """One child claims nothing while its dispatcher asks, wakes it when the last job ended, and forgets an old wish."""
    now = 100.0
    monkeypatch.setattr(clock, "boot_seconds", lambda: now)
    side, other = Side(), Side(makes_room=False)
    side.jobs = other.jobs = True
    assert side.begins(suspect=True) is other.begins(suspect=True) is None

    assert not side.claims()
    assert other.claims(), "the other children go on"
    assert side.woken == []
    side.jobs = False
    assert not side.claims()
    assert side.woken == ["deliveries"]
    now += WISH_LASTS
    assert side.claims(), "who does not ask again needs no room"


def test_job_that_bears_no_company_keeps_deliveries_out() -> None:
    """Asked for quiet, deliveries under way end and none begins, until nothing runs any more that needs it."""
    side = Side()
    with side.company.delivering(suspect=False):
        assert side.company.may_claim()
        assert not side.company.ask_quiet()
        side.company.claimed(isolated=False)
    assert side.woken == ["jobs"]
    assert side.begins(suspect=False) is None
    assert side.company.may_claim()
    assert side.company.ask_quiet()
    side.company.claimed(isolated=True)
    assert side.begins(suspect=False) is side.begins(suspect=True) is None

    assert side.claims()

    assert side.woken == ["jobs", "deliveries"]
    assert side.begins(suspect=False) is Alone.NO


def test_quiet_is_forgotten_when_what_needed_it_was_not_there() -> None:
    """A suspect that another child has taken holds no delivery back here."""
    side = Side()
    assert side.company.may_claim()
    assert side.company.take_quiet()
    assert side.begins(suspect=False) is None
    side.company.forget_quiet()
    side.company.claimed(isolated=False)

    assert side.begins(suspect=False) is Alone.NO


def test_child_that_makes_no_room_takes_quiet_only_as_it_comes() -> None:
    """While something is delivered it goes on with other jobs and holds no delivery back."""
    side = Side()
    with side.company.delivering(suspect=False):
        assert side.company.may_claim()
        assert not side.company.take_quiet()
        side.company.claimed(isolated=False)
    assert side.begins(suspect=False) is Alone.NO
    assert side.company.may_claim()
    assert side.company.take_quiet()
    assert side.begins(suspect=False) is None
