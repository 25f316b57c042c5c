"""The project's own code around an enqueue: middleware, and what the job carries of the present context."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.domain.carried import carried_text
from django_jobs.enqueue.outcome import EnqueueResult
from django_jobs.enqueue.prepared import Prepared
from django_jobs.exceptions import HookError
from django_jobs.hooks import enter, hooks, name_of
from django_jobs.masking import described
from django_jobs.propagation import Propagator


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueueing:
    """What a middleware sees of one call that enqueues: all of its jobs have the same type and options.

    Args:
        job_type: Of the jobs.
        queue_name: Where they will wait.
        priority: From −100 to 100, bigger first.
        tenant: What ``using(tenant=…)`` gave; empty without.
        owner: Who answers for them.
        run_after: When they are due, if not at once.
        database: The alias on which they will be stored.
        results: What the call answers, row by row, once the jobs are stored: empty before, and for what the package
            enqueues later (links of a chain, callbacks) or answers otherwise (``receive()``).
    """

    job_type: str
    queue_name: str
    priority: int
    tenant: str
    owner: str
    run_after: datetime | timedelta | None
    database: str
    results: list[EnqueueResult] = field(default_factory=list)
    _wanted: Sequence[Prepared] = field(repr=False)

    @property
    def count(self) -> int:
        """How many rows the call has."""
        return len(self._wanted)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The arguments of each, as they will be stored; a change of them changes nothing."""
        return [json.loads(item.arguments) for item in self._wanted]


@contextmanager
def hooked(wanted: Sequence[Prepared]) -> Iterator[list[EnqueueResult]]:
    """Run the block, which stores what is wanted, inside of the middleware; it fills in what it answers.

    Raises:
        HookError: A middleware returned no context manager.
        BaseException: What a middleware raises to refuse, or what the block raises: no middleware can hide that.
    """
    around = hooks().around_enqueue
    if not around:
        yield []
        return
    told = _told(wanted)
    with ExitStack() as stack:
        for each in around:
            enter(stack, each(told), of=name_of(each))
        yield told.results


def _told(wanted: Sequence[Prepared]) -> Enqueueing:
    options = wanted[0].options
    return Enqueueing(
        job_type=options.job_type,
        queue_name=options.queue_name,
        priority=options.priority,
        tenant=options.tenant,
        owner=options.owner,
        run_after=options.run_after,
        database=wanted[0].using,
        _wanted=wanted,
    )


def captured() -> str | None:
    """Ask every propagator for what is active now, and write it as it is stored; None when there is nothing.

    Raises:
        HookError: A propagator failed, or what it captured cannot be stored.
    """
    propagators = hooks().propagators
    if not propagators:
        return None
    rules = get_settings()
    values = {each.name: _captured_by(each) for each in propagators}
    return carried_text(values, max_bytes=rules.context_max_bytes, max_depth=rules.payload_max_depth)


def _captured_by(propagator: Propagator) -> Any:
    try:
        return propagator.capture()
    except Exception as error:
        told = described(error)
        msg = f"The propagator {propagator.name!r} failed: {told.type}: {told.message}. Nothing was stored."
        raise HookError(msg, hook=propagator.name) from error


def carrying(prepared: Prepared, context: str | None) -> Prepared:
    """Return what carries a captured context to its handler."""
    return prepared if context is None else replace(prepared, context=context)
