"""What follows a destination's answer: for the delivery, and for the destination's breaker.

An answer against the event (returned, nacked) uses the event's budget and leaves the breaker alone. No answer, or one
against the destination (time-out, error), opens the breaker and leaves the budget alone. An attempt whose process died
gives no answer at all: after it the delivery goes alone, and if it is lost alone too it is dead as poison. Any answer
ends the suspicion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django_jobs.domain.events import Confirmed, Error, Nacked, Report, Returned, Timeout
from django_jobs.domain.poison import FREE_CAUSES, convicts
from django_jobs.domain.states import Alone, DeadReason, DeliveryOutcome, DeliveryState, LossCause

FIRST_DELAY = timedelta(seconds=5)  # after the first answer against an event; it doubles
LONGEST_DELAY = timedelta(minutes=10)
FIRST_PAUSE = timedelta(seconds=1)  # of a destination that is down; it doubles
LONGEST_PAUSE = timedelta(minutes=1)
LONGEST_ASKED = timedelta(hours=1)  # how long a destination may ask us to stay away
LOSSES = 3  # so many attempts in a row whose process died, the last one without company, make a dead delivery
SILENT_LOSSES = (
    6  # and so many, if it was alone in its process each time, but other processes of a silent worker were not
)
OUTCOMES: dict[type, DeliveryOutcome] = {
    Confirmed: DeliveryOutcome.CONFIRMED,
    Returned: DeliveryOutcome.RETURNED,
    Nacked: DeliveryOutcome.NACKED,
    Timeout: DeliveryOutcome.TIMEOUT,
    Error: DeliveryOutcome.ERROR,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """What follows an attempt that did not deliver: the state, and after how long it is due again."""

    outcome: DeliveryOutcome
    state: DeliveryState
    failed_count: int
    lost_count: int = 0
    delay: timedelta = timedelta(0)
    dead_reason: str = ""


def doubled(first: timedelta, times: int, longest: timedelta) -> timedelta:
    """Return ``first`` doubled so many times, no longer than ``longest``."""
    factor: int = 2 ** min(max(times, 0), 30)
    return min(first * factor, longest)


def after_report(report: Report, *, number: int, failed_count: int, budget: int) -> Following:
    """Say what follows an answer other than a confirmation.

    Args:
        report: The answer.
        number: Of the attempt, from 1.
        failed_count: Earlier answers against the event itself.
        budget: So many answers against the event make it a dead delivery.
    """
    outcome = OUTCOMES[type(report)]
    if isinstance(report, Returned | Nacked):
        failed = failed_count + 1
        if failed >= budget:
            return Following(
                outcome=outcome, state=DeliveryState.DEAD_LETTERED, failed_count=failed, dead_reason=outcome.value
            )
        delay = doubled(FIRST_DELAY, failed - 1, LONGEST_DELAY)
        return Following(outcome=outcome, state=DeliveryState.PENDING, failed_count=failed, delay=delay)
    # Later than others of this destination: one that always times out must not be each probe of the breaker.
    delay = doubled(FIRST_PAUSE, number - 1, LONGEST_PAUSE)
    return Following(outcome=outcome, state=DeliveryState.PENDING, failed_count=failed_count, delay=delay)


def after_loss(cause: LossCause, *, alone: Alone, failed_count: int, lost_count: int, stopping: bool) -> Following:
    """Say what follows an attempt whose holder is gone.

    Args:
        cause: What proved it. A lease that is over although the worker lives, and an end on purpose, count nothing.
        alone: How much company the attempt had.
        failed_count: Earlier answers against the event itself.
        lost_count: Earlier losses in a row.
        stopping: Whether its worker had been asked to stop.
    """
    if cause in FREE_CAUSES:
        return Following(
            outcome=DeliveryOutcome.LOST,
            state=DeliveryState.PENDING,
            failed_count=failed_count,
            lost_count=lost_count,
        )
    lost = lost_count + 1
    if lost >= LOSSES and (
        convicts(cause, alone, stopping=stopping) or (lost >= SILENT_LOSSES and alone is not Alone.NO and not stopping)
    ):
        return Following(
            outcome=DeliveryOutcome.LOST,
            state=DeliveryState.DEAD_LETTERED,
            failed_count=failed_count,
            lost_count=lost,
            dead_reason=DeadReason.POISON.value,
        )
    # The first loss may be a neighbour's: due at once. A process that dies again and again is given some rest.
    delay = doubled(FIRST_DELAY, lost - 2, LONGEST_DELAY) if lost > 1 else timedelta(0)
    return Following(
        outcome=DeliveryOutcome.LOST,
        state=DeliveryState.PENDING,
        failed_count=failed_count,
        lost_count=lost,
        delay=delay,
    )


def is_down(reports: Sequence[Report]) -> bool:
    """Say whether a batch speaks against the destination: it answered nothing, and was not reached or too late."""
    return bool(reports) and all(isinstance(report, Timeout | Error) for report in reports)


def pause_after(failures: int, reports: Sequence[Report] = ()) -> timedelta:
    """Return how long nothing is claimed for a destination after so many failures in a row, this one included."""
    asked = [report.retry_after for report in reports if isinstance(report, Error) and report.retry_after]
    pause = doubled(FIRST_PAUSE, failures - 1, LONGEST_PAUSE)
    return max(pause, min(max(asked), LONGEST_ASKED)) if asked else pause
