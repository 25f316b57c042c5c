"""Who may begin beside whom in one child."""

from __future__ import annotations

from itertools import pairwise

import pytest

from django_jobs import clock
from django_jobs.domain.states import Alone
from django_jobs.worker.company import PATIENCE, TURN_LASTS, WISH_LASTS, Company

LONGEST = 60.0


class Time:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """A clock that stands still until it is set forward."""
    time = Time()
    monkeypatch.setattr(clock, "boot_seconds", lambda: time.now)
    return time


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
            longest=lambda suspect: LONGEST if suspect else 2 * LONGEST,
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


def test_jobs_make_room_for_a_delivery_that_waits(time: Time) -> None:
    """One child claims nothing while its dispatcher asks, wakes it when the last job ended, and forgets an old wish."""
    side, other = Side(), Side(makes_room=False)
    side.jobs = other.jobs = True
    assert side.begins(suspect=True) is other.begins(suspect=True) is None

    assert not side.claims()
    assert other.claims(), "the other children go on"
    assert side.woken == []
    side.jobs = False
    assert not side.claims()
    assert side.woken == ["deliveries"]
    time.now += WISH_LASTS
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

    assert not side.claims(), "first it is their turn"

    assert side.woken == ["jobs", "deliveries"]
    assert side.begins(suspect=False) is Alone.NO
    assert side.claims()


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


def waited(side: Side, time: Time, seconds: int) -> list[int]:
    """Let a suspect ask each second, and the loop try to claim; returns after how many seconds it claimed."""
    claims = []
    for second in range(seconds):
        time.now += 1
        assert side.begins(suspect=True) is None
        if side.claims():
            claims.append(second)
    return claims


def test_long_job_does_not_stop_its_child_for_a_delivery_that_waits(time: Time) -> None:
    """A delivery that waits for a job of hours lets others start half of the time, and waits longer each time."""
    side = Side()
    side.jobs = True

    claims = waited(side, time, 3600)

    assert claims[0] == PATIENCE
    assert len(claims) >= 1500
    gaps = [after - before for before, after in pairwise(claims) if after - before > 1]
    assert gaps == sorted(gaps)
    assert gaps[-1] >= 16 * PATIENCE, "a job of that length ends, and the delivery has its turn"


def test_patience_begins_anew_for_the_next_delivery(time: Time) -> None:
    """Once a suspect was delivered, here or elsewhere, the next one waits as short as the first."""
    side = Side()
    side.jobs = True
    waited(side, time, 600)
    side.jobs = False
    assert side.begins(suspect=True) is Alone.CHILD
    assert side.claims()
    side.jobs = True
    assert waited(side, time, 50)[0] == PATIENCE

    waited(side, time, 600)
    time.now += 10 * WISH_LASTS
    assert side.claims()
    assert waited(side, time, 50)[0] == PATIENCE


def test_jobs_have_their_turn_between_two_rounds_of_suspects(time: Time) -> None:
    """However fast the dispatcher comes back, the loop may claim first; a loop that does not come is not waited for."""
    side = Side()
    assert side.begins(suspect=True) is Alone.CHILD
    assert side.begins(suspect=True) is None
    assert side.begins(suspect=False) is Alone.NO
    assert side.claims()
    assert side.begins(suspect=True) is Alone.CHILD

    time.now += 1.0
    assert side.begins(suspect=True) is Alone.CHILD


@pytest.mark.parametrize("suspect", [True, False])
def test_delivery_that_never_ends_holds_no_job_back(time: Time, suspect: bool) -> None:
    """A publisher that hangs is company that nobody waits for: jobs are claimed, and only those that bear company."""
    side = Side()
    with side.company.delivering(suspect=suspect):
        assert side.claims() is not suspect
        assert not side.company.is_stuck
        time.now += (1 if suspect else 2) * LONGEST + 1
        assert side.company.is_stuck
        assert side.company.may_claim()
        assert not side.company.take_quiet()
        side.company.claimed(isolated=False)
    assert not side.company.is_stuck


def test_deliveries_have_their_turn_between_two_jobs_without_company(time: Time) -> None:
    """A row of suspected jobs, one after another, does not keep every event from going out until the last one ended."""
    side = Side()
    for _ in range(3):
        assert side.company.may_claim()
        assert side.company.ask_quiet()
        side.company.claimed(isolated=True)
        side.jobs = True
        assert side.begins(suspect=False) is side.begins(suspect=True) is None
        side.jobs = False
        side.woken.clear()

        assert not side.company.may_claim()
        assert side.woken == ["deliveries"]
        assert side.begins(suspect=True) is Alone.CHILD
        assert side.begins(suspect=False) is Alone.NO
        assert side.woken == ["deliveries", "jobs", "jobs"]


def test_turn_that_no_delivery_takes_passes(time: Time) -> None:
    """What was refused may be gone meanwhile; then the next job begins."""
    side = Side()
    assert side.company.may_claim()
    assert side.company.ask_quiet()
    side.company.claimed(isolated=True)
    assert side.begins(suspect=False) is None
    assert not side.claims()

    time.now += TURN_LASTS

    assert side.claims()
