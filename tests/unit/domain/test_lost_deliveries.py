"""Lost attempts to deliver: who is suspected, who is convicted, and what says nothing against an event."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_jobs.domain.deliveries import Following, after_loss, after_report
from django_jobs.domain.events import Error, Nacked, Timeout
from django_jobs.domain.states import Alone, DeliveryState, LossCause

EXIT, SILENT, EXPIRED, ENDED = LossCause.EXIT, LossCause.SILENT, LossCause.EXPIRED, LossCause.ENDED


def lost(cause: LossCause, *, alone: Alone = Alone.NO, before: int = 0, stopping: bool = False) -> Following:
    """Ask what follows a loss."""
    return after_loss(cause, alone=alone, failed_count=1, lost_count=before, stopping=stopping)


def test_first_loss_makes_a_suspect_that_is_due_at_once() -> None:
    """It may have been a neighbour, so it does not wait; later losses are given some rest."""
    first, second = lost(EXIT), lost(EXIT, alone=Alone.CHILD, before=1)

    assert (first.state, first.lost_count, first.failed_count) == (DeliveryState.PENDING, 1, 1)
    assert first.delay == timedelta(0) < second.delay


@pytest.mark.parametrize(
    ("cause", "alone", "stopping", "dead"),
    [
        (EXIT, Alone.NO, False, False),
        (EXIT, Alone.CHILD, False, True),
        (EXIT, Alone.WORKER, False, True),
        (SILENT, Alone.CHILD, False, False),
        (SILENT, Alone.WORKER, False, True),
        (SILENT, Alone.WORKER, True, False),
        (EXPIRED, Alone.WORKER, False, False),
        (ENDED, Alone.WORKER, False, False),
    ],
)
def test_third_loss_convicts_only_without_company(cause: LossCause, alone: Alone, stopping: bool, dead: bool) -> None:
    """Three losses and the last one alone, as it is with jobs; in company it stays a suspect, however often."""
    following = lost(cause, alone=alone, before=2, stopping=stopping)

    assert (following.state is DeliveryState.DEAD_LETTERED) is dead
    assert following.dead_reason == ("poison" if dead else "")


def test_killer_of_whole_workers_is_convicted_in_the_end() -> None:
    """With several processes it is never alone on its worker; at the sixth loss that no longer acquits it."""
    fates = [lost(SILENT, alone=Alone.CHILD, before=before).state for before in range(6)]

    assert fates == [*[DeliveryState.PENDING] * 5, DeliveryState.DEAD_LETTERED]
    assert lost(SILENT, before=9).state is DeliveryState.PENDING, "in company never"
    assert lost(SILENT, alone=Alone.CHILD, before=9, stopping=True).state is DeliveryState.PENDING


@pytest.mark.parametrize("cause", [EXPIRED, ENDED])
def test_ends_that_nobody_caused_count_nothing(cause: LossCause) -> None:
    """A lease that ended while the worker lives (an outage) and an end on purpose leave the count as it was."""
    assert [lost(cause, before=before).lost_count for before in (0, 1, 2)] == [0, 1, 2]


@pytest.mark.parametrize("report", [Nacked("too large"), Error("down"), Timeout("late")])
def test_any_answer_ends_the_suspicion(report: Error | Nacked | Timeout) -> None:
    """Whoever reports did not end the process."""
    assert after_report(report, number=3, failed_count=0, budget=5).lost_count == 0
