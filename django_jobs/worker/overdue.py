"""Attempts that had run past their lease when their process was ended on purpose, and could not be recorded by it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta

from django_jobs import telemetry
from django_jobs.define import registry
from django_jobs.domain.lease import LeaseTerms
from django_jobs.domain.retry import DeadLetter, RetryPolicy, after_failure, count_failure
from django_jobs.domain.states import ErrorClass
from django_jobs.exceptions import LeaseLostError
from django_jobs.masking import described
from django_jobs.store import Abandoned, Failure, dead_letter, fail
from django_jobs.worker.alerts import Alert, tell_of_dead_letter
from django_jobs.worker.alerts import dead_letter as dead_letter_alert
from django_jobs.worker.connection import bounded
from django_jobs.worker.ends import DEAD, RETRY, tell_end_of_gone
from django_jobs.worker.finish import ran_past
from django_jobs.worker.rescue import PATIENCE

logger = logging.getLogger("django_jobs.worker")


def _terms(found: Abandoned) -> LeaseTerms:
    definition = registry.find(found.job_type)
    return definition.terms if definition else LeaseTerms()


def ran_past_by(found: Abandoned, *, since: float) -> bool:
    """Say whether the attempt was overdue when its process ended, ``since`` seconds before it was looked up."""
    return found.lease_left + timedelta(seconds=since) <= _terms(found).overdue_margin


def fail_overdue(found: Iterable[Abandoned]) -> None:
    """Fail each as its own process would have: an unknown error, charged to the job; it is no loss."""
    for item in found:
        try:
            _fail(item)
        except LeaseLostError:
            continue  # somebody judged it before
        logger.warning("Attempt %s of job %s ran past its lease and was ended", item.number, item.job_id)
        telemetry.emit("attempt.overdue", job_id=item.job_id, job_type=item.job_type)


def _fail(item: Abandoned) -> None:
    definition, terms = registry.find(item.job_type), _terms(item)
    policy = definition.retry if definition else RetryPolicy()
    record = described(ran_past(terms.lease))
    counters = count_failure(item.counters, ErrorClass.UNKNOWN, same=record.fingerprint == item.error_fingerprint)
    following = after_failure(
        policy,
        error_class=ErrorClass.UNKNOWN,
        counters=counters,
        age=item.age,
        retry_after=None,
        useful_left=item.useful_left,
        extra_attempts=item.extra_attempts,
    )
    failure = Failure(error=record, error_class=ErrorClass.UNKNOWN, counters=counters)
    with bounded(item.using, PATIENCE):
        if isinstance(following, DeadLetter):
            dead_letter(item, failure=failure, reason=following.reason, budget=terms.budget)
        else:
            fail(item, failure=failure, delay=following.delay, budget=terms.budget)
    reason = following.reason if isinstance(following, DeadLetter) else None
    tell_end_of_gone(item, DEAD if reason else RETRY, error=record, error_class=ErrorClass.UNKNOWN, dead_reason=reason)
    if isinstance(following, DeadLetter):
        alert = Alert(
            job_id=item.job_id,
            job_type=item.job_type,
            owner=item.owner,
            reason=dead_letter_alert(following.reason),
            message=f"{record.type}: {record.message}",
        )
        tell_of_dead_letter(alert, following.reason, using=item.using)
