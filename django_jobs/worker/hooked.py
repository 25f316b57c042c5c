"""The project's own code around a handler: what the job carries is active again, then comes the middleware."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from django_jobs.domain.carried import carried_values
from django_jobs.domain.lines import one_line
from django_jobs.hooks import enter, hooks, name_of
from django_jobs.middleware import Attempting
from django_jobs.propagation import Propagator
from django_jobs.worker.attempt import RunningAttempt

logger = logging.getLogger("django_jobs.worker")

_NAMES_MAX = 100  # that are remembered as told: they come from rows
_told: set[str] = set()


@contextmanager
def hooked(attempt: RunningAttempt) -> Iterator[None]:
    """Run the block, which is the handler, with what its job carries, inside of the middleware.

    Raises:
        PayloadError: The stored context is not what a producer stores.
        BaseException: What the handler raises, which no hook can hide; or what a hook raises.
    """
    context, found = attempt.claimed.context, hooks()
    if context is None and not found.around_attempt:
        yield
        return
    with ExitStack() as stack:
        _restore(carried_values(context), found.propagators, stack)
        if found.around_attempt:
            seen = _seen(attempt)
            for each in found.around_attempt:
                enter(stack, each(seen), of=name_of(each))
        yield


def _restore(values: dict[str, Any], propagators: Sequence[Propagator], stack: ExitStack) -> None:
    """Make the values active, in the order of the settings; a job that carries nothing of a name leaves it as it is."""
    for propagator in propagators:
        if propagator.name not in values:
            continue
        try:
            enter(stack, propagator.restore(values[propagator.name]), of=f"restore() of {propagator.name!r}")
        except BaseException as error:
            error.add_note(f"The propagator {propagator.name!r} failed before the handler began.")
            raise
    known = {propagator.name for propagator in propagators}
    for name in values:
        if name not in known:
            _tell_once(name)


def _tell_once(name: str) -> None:
    """Say that jobs carry what this code has no propagator for: it was removed, or this worker is older."""
    if name in _told or len(_told) >= _NAMES_MAX:
        return
    _told.add(name)
    logger.warning("Jobs carry %s, for which CONTEXT names no propagator; it is left out", one_line(repr(name))[:100])


def _seen(attempt: RunningAttempt) -> Attempting:
    claimed = attempt.claimed
    return Attempting(
        job_id=claimed.job_id,
        attempt_id=claimed.attempt_id,
        number=claimed.number,
        generation=claimed.generation,
        job_type=claimed.job_type,
        queue_name=claimed.queue_name,
        priority=claimed.priority,
        tenant=claimed.tenant,
        subject=claimed.subject,
        owner=claimed.owner,
        key=claimed.key,
        correlation_id=claimed.correlation_id or str(claimed.job_id),
        database=claimed.using,
        _arguments=claimed.arguments,
    )
