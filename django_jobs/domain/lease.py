"""How long an attempt owns its job, when it may renew, and when others may judge it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django_jobs.domain.durations import check_longest
from django_jobs.exceptions import DefinitionError, NoTimeLeftError

HEARTBEAT = timedelta(seconds=5)  # a worker says that it lives
SILENT_AFTER = timedelta(seconds=20)  # without a beat for this long, its attempts may be judged lost
REAPER_TICK = timedelta(seconds=5)  # how often a worker looks for lost attempts
EXPIRED_PATIENCE = timedelta(seconds=20)  # a lease is judged only after it has been over for this long
GAP = timedelta(seconds=7)  # between two own beats: more, and the judge has been away itself
OVERDUE_MARGIN = timedelta(seconds=2)  # overdue code is ended this long before its lease is over
MAX_CALL = timedelta(seconds=10)  # the longest deadline of one call to a provider
SOFT_LEAST = timedelta(seconds=1)  # what a soft time-out must leave a handler before it is ended
PROGRESS_WRITES = 4  # renewals written per lease, at most

_SECOND = timedelta(seconds=1)
_DEFAULT_RUNTIME_FACTOR = 20


@dataclass(frozen=True, slots=True, init=False)
class LeaseTerms:
    """The times of one attempt: ``budget`` for the work, ``cleanup`` for ending it, ``max_runtime`` with renewals.

    ``max_runtime`` defaults to 20 × ``budget``. Raises :class:`~django_jobs.exceptions.DefinitionError` when a time is
    missing or below one second, or when ``max_runtime`` is shorter than the lease.
    """

    budget: timedelta
    cleanup: timedelta
    max_runtime: timedelta

    def __init__(
        self,
        *,
        budget: timedelta = timedelta(seconds=60),
        cleanup: timedelta = timedelta(seconds=10),
        max_runtime: timedelta | None = None,
    ) -> None:
        _check("budget", budget)
        _check("cleanup", cleanup)
        if max_runtime is None:
            max_runtime = max(_DEFAULT_RUNTIME_FACTOR * budget, budget + cleanup)
        _check("max_runtime", max_runtime)
        if max_runtime < budget + cleanup:
            raise DefinitionError(
                f"max_runtime ({max_runtime}) is shorter than budget + cleanup ({budget + cleanup}); raise max_runtime."
            )
        object.__setattr__(self, "budget", budget)
        object.__setattr__(self, "cleanup", cleanup)
        object.__setattr__(self, "max_runtime", max_runtime)

    @property
    def lease(self) -> timedelta:
        """How long a claim or a renewal owns the job."""
        return self.budget + self.cleanup

    @property
    def overdue_margin(self) -> timedelta:
        """How long before its lease ends an attempt is overdue: at most the cleanup, so the budget stays whole."""
        return min(OVERDUE_MARGIN, self.cleanup)

    @property
    def progress_interval(self) -> timedelta:
        """The shortest time between two renewals, so that progress costs a bounded number of writes."""
        return self.lease / PROGRESS_WRITES


def _check(name: str, value: object) -> None:
    if not isinstance(value, timedelta):
        raise DefinitionError(f"{name} is {value!r}; give a timedelta of at least one second. No job runs without end.")
    if value < _SECOND:
        raise DefinitionError(f"{name} is {value}; give at least one second.")
    check_longest(value, what=name)


def overdue_after(terms: LeaseTerms, *, renewed: timedelta = timedelta(0)) -> timedelta:
    """Return how long after its claim an attempt is overdue, if its last renewal came ``renewed`` after the claim."""
    return min(renewed + terms.lease, terms.max_runtime) - terms.overdue_margin


def soft_after(terms: LeaseTerms, *, renewed: timedelta = timedelta(0)) -> timedelta:
    """Return how long after its claim a handler is told that its time is up; ``renewed`` as for :func:`overdue_after`.

    That is the end of its budget, and never later than ``cleanup`` before the end of ``max_runtime``.
    """
    return min(renewed + terms.budget, terms.max_runtime - terms.cleanup)


def check_soft(terms: LeaseTerms) -> None:
    """Refuse times that leave a handler nothing between the soft time-out and its end.

    Raises:
        DefinitionError: The cleanup is too short.
    """
    least = OVERDUE_MARGIN + SOFT_LEAST
    if terms.cleanup < least:
        raise DefinitionError(
            f"soft_timeout needs a cleanup of at least {least.total_seconds():g} seconds, not "
            f"{terms.cleanup.total_seconds():g}: the handler is ended {terms.overdue_margin.total_seconds():g} s "
            "before its lease is over. Raise cleanup, or declare soft_timeout=False."
        )


def lease_at_renewal(terms: LeaseTerms, *, elapsed: timedelta) -> timedelta:
    """Return the lease that a renewal ``elapsed`` after the claim may take: whole, but never past ``max_runtime``."""
    return max(timedelta(0), min(terms.lease, terms.max_runtime - elapsed))


def may_renew(stored: int | None, value: int) -> bool:
    """Say whether progress ``value`` is growth over the ``stored`` one (None: none reported since the claim)."""
    return stored is None or value > stored


def call_time(*, timeout: timedelta, max_call: timedelta, remaining: timedelta) -> timedelta:
    """Return the time that one call to a provider gets: its own ``timeout``, never more than ``max_call``.

    Raises :class:`~django_jobs.exceptions.NoTimeLeftError` when the call could outlive the ``remaining`` budget: it is
    not cut short, because a call that was cut leaves its outcome unknown.
    """
    allowed = min(timeout, max_call)
    if allowed > remaining:
        raise NoTimeLeftError(
            f"No time left: the call may take {allowed.total_seconds():g} s and the budget ends in "
            f"{max(remaining.total_seconds(), 0):g} s. Nothing was sent; raise the budget or shorten the timeout."
        )
    return allowed


def may_judge(beats: Sequence[float], now: float, *, heartbeat: timedelta = HEARTBEAT, gap: timedelta = GAP) -> bool:
    """Say whether a worker with these own ``beats`` (seconds, ascending, a clock of its own) may judge others ``now``.

    It may after two good beats in a row and one more period after the second. More than ``gap`` between two beats, or
    since the last one, means that the judge was away itself: whoever looks silent to it may only have been cut off too.
    """
    limit = gap.total_seconds()
    if not beats or now - beats[-1] > limit:
        return False
    start = len(beats) - 1
    while start > 0 and beats[start] - beats[start - 1] <= limit:
        start -= 1
    if len(beats) - start < 2:
        return False
    return now >= beats[start + 1] + heartbeat.total_seconds()
