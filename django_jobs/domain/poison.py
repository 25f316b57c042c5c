"""Lost attempts: whom the next claim isolates, when a job is convicted, and what clears it again.

An attempt that vanished says nothing about its cause: the job may kill its process, or only have been near one that
does. So a job that was lost runs without company the next time, and only a loss without company convicts.
"""

from __future__ import annotations

import random as _random
from dataclasses import replace
from datetime import timedelta

from django_jobs.domain.retry import (
    ZERO,
    Counters,
    DeadLetter,
    Next,
    Random,
    Retry,
    RetryPolicy,
    after_free_move,
    backoff,
    count_free,
)
from django_jobs.domain.states import Alone, DeadReason, LossCause

SILENT_LOSSES_BEFORE_ALONE = 2
FREE_CAUSES = frozenset({LossCause.EXPIRED, LossCause.ENDED})  # they say nothing against the job: no loss is counted


def isolation(*, exit_lost: int, silent_lost: int) -> Alone:
    """Return the company that the next attempt may have; the wider isolation wins.

    After a reaped exit the process is known, so an own child is enough. Two silent losses may hide a job that takes the
    whole group of processes with it, so it runs alone on its worker.
    """
    if silent_lost >= SILENT_LOSSES_BEFORE_ALONE:
        return Alone.WORKER
    return Alone.CHILD if exit_lost >= 1 else Alone.NO


def convicts(cause: LossCause, alone: Alone, *, stopping: bool = False) -> bool:
    """Say whether a loss of ``cause`` proves the job itself guilty, given the company that its attempt had.

    A worker that fell silent while it was ``stopping`` proves nothing: whoever asked it to stop may have ended it.
    """
    if cause is LossCause.EXIT:
        return alone is not Alone.NO
    return cause is LossCause.SILENT and alone is Alone.WORKER and not stopping


def ended_on_purpose(*, announced: bool, killed_by_supervisor: bool) -> bool:
    """Say whether a reaped process was ended by its worker and not by a job: only what was said beforehand counts.

    Neither an exit code nor a stop that is under way is proof: a job can exit with any code, at any time.
    """
    return announced or killed_by_supervisor


def count_loss(counters: Counters, cause: LossCause) -> Counters:
    """Return the counters after a loss; what says nothing against the job is a free move, not a loss."""
    if cause in FREE_CAUSES:
        return count_free(counters)
    if cause is LossCause.EXIT:
        return replace(counters, lost=counters.lost + 1, exit_lost=counters.exit_lost + 1)
    return replace(counters, lost=counters.lost + 1, silent_lost=counters.silent_lost + 1)


def cleared(counters: Counters) -> Counters:
    """Return the counters after an attempt that succeeded, failed or snoozed: it reported, so suspicion ends.

    An attempt that was released proved nothing and clears nothing.
    """
    return replace(counters, lost=0, exit_lost=0, silent_lost=0)


def after_loss(
    policy: RetryPolicy,
    *,
    cause: LossCause,
    alone: Alone,
    counters: Counters,
    age: timedelta,
    useful_left: timedelta | None,
    stopping: bool = False,
    random: Random = _random.random,
) -> Next:
    """Decide what follows a lost attempt whose claim wrote ``alone``; ``counters`` already count the loss.

    The first loss makes the job due at once, later ones back off. A dead letter says ``poison`` when at least
    ``policy.losses`` attempts were lost and the last loss convicts.
    """
    delay = _delay(policy, cause=cause, counters=counters, random=random)
    if cause in FREE_CAUSES:
        return after_free_move(policy, counters=counters, age=age, delay=delay, useful_left=useful_left)
    if counters.lost >= policy.losses and convicts(cause, alone, stopping=stopping):
        return DeadLetter(DeadReason.POISON)
    if useful_left is not None and delay > useful_left:
        return DeadLetter(DeadReason.EXPIRED)
    if counters.lost >= policy.losses and age + delay > policy.transient_max_age:
        return DeadLetter(DeadReason.AGE)
    return Retry(delay)


def _delay(policy: RetryPolicy, *, cause: LossCause, counters: Counters, random: Random) -> timedelta:
    if cause is LossCause.ENDED:
        return ZERO  # as after a release: nobody but the worker was the reason
    times = counters.free if cause is LossCause.EXPIRED else counters.lost
    return ZERO if times <= 1 else backoff(policy, times - 1, random=random)
