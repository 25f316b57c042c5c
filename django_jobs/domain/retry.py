"""When a job is tried again, how long that takes, and when a human decides instead."""

from __future__ import annotations

import math
import random as _random
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import timedelta

from django_jobs.domain.durations import check_longest
from django_jobs.domain.states import DeadReason, ErrorClass
from django_jobs.exceptions import DefinitionError

ZERO = timedelta(0)

# A job may be old only because it waited behind an outage: its age means "no progress" after so many moves.
MOVES_BEFORE_AGE = 3

Random = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How failures of one job type are answered.

    Delays are full jitter: a random part of ``base`` × ``factor`` ^ (failures − 1), never above ``cap``. A transient
    failure is retried until the job is ``transient_max_age`` old; an unknown one ``unknown_attempts`` times, or until
    the same one came ``unchanged`` times in a row. ``losses`` is the number of lost attempts from which a conviction
    dead-letters; ``free_moves`` bounds snoozes and releases; ``reconcile_max_age`` bounds waiting for evidence about an
    effect. ``permanent`` and ``transient`` name exception types that override the default table.

    Raises :class:`~django_jobs.exceptions.DefinitionError` when a value cannot work.
    """

    base: timedelta = timedelta(seconds=20)
    factor: float = 2.0
    cap: timedelta = timedelta(minutes=10)
    transient_max_age: timedelta = timedelta(hours=24)
    unknown_attempts: int = 3
    unchanged: int = 5
    losses: int = 3
    free_moves: int = 200
    reconcile_max_age: timedelta = timedelta(hours=24)
    permanent: tuple[type[BaseException], ...] = ()
    transient: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        for name in ("base", "cap", "transient_max_age", "reconcile_max_age"):
            _check_duration(name, getattr(self, name))
        for name in ("unknown_attempts", "unchanged", "losses", "free_moves"):
            _check_count(name, getattr(self, name))
        _check_factor(self.factor)
        if self.cap < self.base:
            raise DefinitionError(f"RetryPolicy: cap ({self.cap}) is shorter than base ({self.base}); raise cap.")
        for name in ("permanent", "transient"):
            _check_types(name, getattr(self, name))
        both = sorted(error.__name__ for error in set(self.permanent) & set(self.transient))
        if both:
            raise DefinitionError(f"RetryPolicy: {', '.join(both)} is named in permanent and in transient; choose one.")


def _check_duration(name: str, value: object) -> None:
    if not isinstance(value, timedelta):
        raise DefinitionError(f"RetryPolicy: {name} is {value!r}; give a timedelta, for example timedelta(seconds=5).")
    if value <= ZERO:
        raise DefinitionError(f"RetryPolicy: {name} is {value}; give a time above zero.")
    check_longest(value, what=f"RetryPolicy: {name}")


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise DefinitionError(f"RetryPolicy: {name} is {value!r}; give a whole number, 1 or more.")
    if value < 1:
        raise DefinitionError(f"RetryPolicy: {name} is {value}; give 1 or more (1 means: no second try).")


def _check_factor(value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 1:
        raise DefinitionError(f"RetryPolicy: factor is {value!r}; give a number, 1 or more (2 doubles each delay).")


def _check_types(name: str, value: object) -> None:
    if not isinstance(value, tuple):
        raise DefinitionError(f"RetryPolicy: {name} is {value!r}; give a tuple of exception types, also for only one.")
    for member in value:
        if not (isinstance(member, type) and issubclass(member, BaseException)):
            raise DefinitionError(f"RetryPolicy: {name} has {member!r}, which is not an exception type.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What one generation of a job has used up so far: the counters on its row.

    ``unknown`` and ``transient`` count failures by class, ``unchanged`` how often the last unknown one came in a row.
    ``lost`` counts losses since the last attempt that reported anything, ``exit_lost`` and ``silent_lost`` the same by
    proof. ``free`` counts moves that charge no error budget: snoozes, releases and leases that ran out.
    """

    unknown: int = 0
    transient: int = 0
    lost: int = 0
    free: int = 0
    exit_lost: int = 0
    silent_lost: int = 0
    unchanged: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 0:
                raise ValueError(
                    f"Counters: {field.name} is {getattr(self, field.name)}; a counter never goes below 0."
                )


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after ``delay`` (zero: due at once)."""

    delay: timedelta


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Stop and let a human decide, because of ``reason``."""

    reason: DeadReason


Next = Retry | DeadLetter


def count_failure(counters: Counters, error_class: ErrorClass, *, same: bool) -> Counters:
    """Return the counters after a failure of ``error_class``; ``same``: its fingerprint equals the last failure's.

    A failure is an attempt that reported, so it clears losses. Only unknown failures are counted as unchanged: an
    outage repeats itself by nature.
    """
    counters = replace(counters, lost=0, exit_lost=0, silent_lost=0)
    if error_class is ErrorClass.TRANSIENT:
        return replace(counters, transient=counters.transient + 1, unchanged=0)
    if error_class is ErrorClass.UNKNOWN:
        return replace(counters, unknown=counters.unknown + 1, unchanged=counters.unchanged + 1 if same else 1)
    return counters


def count_free(counters: Counters) -> Counters:
    """Return the counters after a move that charges no error budget."""
    return replace(counters, free=counters.free + 1)


def backoff(policy: RetryPolicy, failures: int, *, random: Random = _random.random) -> timedelta:
    """Return a random delay below the bound that ``failures`` failures have reached (full jitter)."""
    base, cap = policy.base.total_seconds(), policy.cap.total_seconds()
    try:
        bound = min(cap, base * float(policy.factor) ** (max(failures, 1) - 1))
    except OverflowError:
        bound = cap
    return timedelta(seconds=bound * random())


def after_failure(
    policy: RetryPolicy,
    *,
    error_class: ErrorClass,
    counters: Counters,
    age: timedelta,
    retry_after: timedelta | None,
    useful_left: timedelta | None,
    random: Random = _random.random,
    extra_attempts: int = 0,
    dead_reason: DeadReason = DeadReason.PERMANENT,
) -> Next:
    """Decide what follows a failed attempt.

    ``counters`` already count this failure; ``age`` is the time since the generation started; ``useful_left`` the time
    until the result is worth nothing (None: never). ``extra_attempts`` is what an operator added to both
    limits of unknown errors for this generation; ``dead_reason`` names the dead letter of a permanent failure.
    """
    if error_class is ErrorClass.PERMANENT:
        return DeadLetter(dead_reason)
    if error_class is ErrorClass.UNKNOWN:
        if counters.unknown >= policy.unknown_attempts + extra_attempts:
            return DeadLetter(DeadReason.UNKNOWN_BUDGET)
        if counters.unchanged >= policy.unchanged + extra_attempts:
            return DeadLetter(DeadReason.UNCHANGED)
    delay = _delay(policy, counters=counters, age=age, retry_after=retry_after, random=random)
    if useful_left is not None and delay > useful_left:
        return DeadLetter(DeadReason.EXPIRED)
    if error_class is ErrorClass.TRANSIENT and age + delay > policy.transient_max_age:
        return DeadLetter(DeadReason.AGE)
    return Retry(delay)


def _delay(
    policy: RetryPolicy, *, counters: Counters, age: timedelta, retry_after: timedelta | None, random: Random
) -> timedelta:
    """Honour ``retry_after`` as a minimum, but never so long that it alone ends the job: the last try is at max age."""
    own = backoff(policy, counters.unknown + counters.transient, random=random)
    if retry_after is None:
        return own
    return max(own, min(retry_after, policy.transient_max_age - age))


def after_free_move(
    policy: RetryPolicy,
    *,
    counters: Counters,
    age: timedelta,
    delay: timedelta,
    useful_left: timedelta | None = None,
) -> Next:
    """Decide what follows a snooze, a release or a lease that ran out; ``counters`` already count it."""
    if useful_left is not None and delay > useful_left:
        return DeadLetter(DeadReason.EXPIRED)
    too_old = counters.free >= MOVES_BEFORE_AGE and age + delay > policy.transient_max_age
    if counters.free > policy.free_moves or too_old:
        return DeadLetter(DeadReason.NO_PROGRESS)
    return Retry(delay)


def wish_within(policy: RetryPolicy, wish: timedelta, *, waited: timedelta) -> timedelta:
    """Cut a wish to be asked later, so that it alone never ends a wait for evidence: the last try is at max age."""
    return max(ZERO, min(wish, policy.reconcile_max_age - waited))


def after_wait(policy: RetryPolicy, *, waited: timedelta, delay: timedelta) -> Next:
    """Decide whether a job may wait ``delay`` longer for evidence about an effect after ``waited`` so far."""
    if waited + delay > policy.reconcile_max_age:
        return DeadLetter(DeadReason.EFFECT_OPEN)
    return Retry(delay)
