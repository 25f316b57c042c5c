"""Judging losses: what follows a lost attempt, by the rules of its job type."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterable
from datetime import timedelta

from django_jobs import faults
from django_jobs.define import registry
from django_jobs.domain.poison import after_loss, count_loss
from django_jobs.domain.retry import DeadLetter, RetryPolicy
from django_jobs.domain.states import LossCause
from django_jobs.store import Abandoned, Loss, rescue
from django_jobs.worker.alerts import Alert, dead_letter, tell_of_dead_letter
from django_jobs.worker.connection import bounded
from django_jobs.worker.ends import LOST, tell_end_of_gone

logger = logging.getLogger("django_jobs.worker")

PATIENCE = timedelta(seconds=5)  # for one statement: a locked table must not keep a worker from saying that it lives

_DEFAULT = RetryPolicy()


def judge(found: Abandoned, *, exit_status: int | None = None) -> Loss:
    """Decide what follows the loss of one attempt."""
    definition = registry.find(found.job_type)
    policy = definition.retry if definition else _DEFAULT
    counters = count_loss(found.counters, found.cause)
    following = after_loss(
        policy,
        cause=found.cause,
        alone=found.alone,
        counters=counters,
        age=found.age,
        useful_left=found.useful_left,
        stopping=found.stopping,
    )
    dead = isinstance(following, DeadLetter)
    return Loss(
        cause=found.cause,
        counters=counters,
        delay=timedelta(0) if isinstance(following, DeadLetter) else following.delay,
        dead_reason=following.reason if isinstance(following, DeadLetter) else None,
        exit_status=exit_status,
        message=describe_loss(found.cause, exit_status) + (" The job was dead-lettered." if dead else ""),
    )


def describe_loss(cause: LossCause, exit_status: int | None) -> str:
    """Say in plain English what proved the loss; its outcome was never observed and it may have succeeded."""
    return f"Never observed, and it may have succeeded: {how_lost(cause, exit_status)}."


def how_lost(cause: LossCause, exit_status: int | None) -> str:
    """Say in plain English what proved that a holder is gone."""
    if cause is LossCause.EXIT:
        return _exit_text(exit_status)
    if cause is LossCause.SILENT:
        return "its worker stopped saying that it lives"
    if cause is LossCause.ENDED:
        return "its worker ended the process on purpose and could not give the job back"
    return "its lease was over and it had not finished"


def _exit_text(status: int | None) -> str:
    if status is None:
        return "its process ended"
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return f"its process was ended by {name}"
    return f"its process exited with code {status}"


def take_back(
    found: Iterable[Abandoned],
    *,
    exit_status: int | None = None,
    while_true: Callable[[], bool] = lambda: True,
) -> list[Abandoned]:
    """Rescue each while that is allowed; returns those that were not taken because their row is locked or moved on."""
    left = []
    for item in found:
        if not while_true():
            break
        if not take_back_one(item, exit_status=exit_status):
            left.append(item)
    return left


def take_back_one(item: Abandoned, *, exit_status: int | None = None) -> bool:
    """Rescue one; False when its row is locked or moved on."""
    loss = judge(item, exit_status=exit_status)
    with bounded(item.using, PATIENCE):
        taken = rescue(item, loss=loss)
    if not taken:
        return False
    faults.reached("reap.after_commit", using=item.using)
    tell_end_of_gone(item, LOST, loss=loss)
    logger.warning(
        "Attempt %s of job %s was lost: %s", item.number, item.job_id, loss.message, extra={"event": "job.rescue"}
    )
    if loss.dead_reason is not None:
        alert = Alert(
            job_id=item.job_id,
            job_type=item.job_type,
            owner=item.owner,
            reason=dead_letter(loss.dead_reason, job_type=item.job_type),
            message=loss.message,
        )
        tell_of_dead_letter(alert, loss.dead_reason, using=item.using)
    return True
