"""What follows the end of a job that belongs to others: the next link of its chain, and the end of its batch."""

from __future__ import annotations

import logging

from django_jobs.domain.lines import one_line
from django_jobs.enqueue.chains import Former, enqueue_next
from django_jobs.enqueue.closing import close_batch
from django_jobs.store.turns import settle_turns
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.ends import CANCELLED, DEAD, SUCCEEDED

logger = logging.getLogger("django_jobs.worker")

_ENDS = {SUCCEEDED, DEAD, CANCELLED}


def enqueue_following(attempt: RunningAttempt, result: str | None) -> None:
    """Enqueue the next link, in the transaction that has just recorded the success of this one; a chain's end has none.

    ``result`` is the result as it is stored.
    """
    claimed = attempt.claimed
    if claimed.chain_id is None or claimed.chain_position is None:
        return
    former = Former(
        chain_id=claimed.chain_id,
        position=claimed.chain_position,
        batch_id=claimed.batch_id,
        correlation_id=claimed.correlation_id or str(claimed.job_id),
        traceparent=claimed.traceparent,
        using=attempt.using,
    )
    enqueue_next(former, result=result)


def pass_turn_on(attempt: RunningAttempt) -> None:
    """Let the next job of the same serial key begin when this one has ended for good; never raises."""
    key = attempt.claimed.serial_key
    if not key or attempt.outcome not in _ENDS:
        return
    try:
        settle_turns([key], using=attempt.using)
    except Exception:
        logger.exception("The turn of serial key %s is left to the next look of a worker", one_line(key))


def close_if_last(attempt: RunningAttempt) -> None:
    """Close the batch of a member that has ended for good, if it was the last; never raises."""
    batch_id = attempt.claimed.batch_id
    if batch_id is None or attempt.outcome not in _ENDS:
        return
    try:
        close_batch(batch_id, using=attempt.using)
    except Exception:
        logger.exception("Batch %s is left to the next look of a worker", batch_id)
