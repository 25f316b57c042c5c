"""Calls that become members of the batch that is open here."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from django_jobs.enqueue.bulk import enqueue_many
from django_jobs.enqueue.calls import Call
from django_jobs.enqueue.database import database_named
from django_jobs.enqueue.outcome import EnqueueResult
from django_jobs.exceptions import DefinitionError, IdempotencyConflictError


def add(calls: Iterable[Call], *, using: str) -> list[EnqueueResult]:
    """Enqueue calls as members of the batch that is open here, those of one job type and its options together.

    Raises:
        IdempotencyConflictError: A key is live with other arguments; the caller's transaction is to be rolled back.
    """
    listed = list(calls)
    for call in listed:
        check_member(call, using=using)
    results: list[EnqueueResult] = []
    for options, group in groupby(listed, key=lambda call: call.options):
        results += enqueue_many(options, [call.arguments() for call in group])
    for call, result in zip(listed, results, strict=True):
        if result.outcome == "conflict":
            msg = (
                f"The idempotency key of {call.options.job_type} is held by job {result.id} with other arguments, so "
                "the batch cannot have it as a member."
            )
            raise IdempotencyConflictError(msg, job_id=result.id)
    return results


def check_member(call: object, *, using: str) -> None:
    """Refuse what cannot be a member of a batch on this database.

    Raises:
        DefinitionError: It is no call, or one that is stored elsewhere or apart.
    """
    if not isinstance(call, Call):
        msg = f"A batch is made of calls such as charge.prepare(order_id=7), not of {call!r}."
        raise DefinitionError(msg)
    if call.pass_result:
        msg = f"pass_result is for links of a chain; {call.options.job_type} is a member of a batch."
        raise DefinitionError(msg)
    if call.options.detached:
        msg = f"{call.options.job_type} is detached, so it cannot be a member of a batch."
        raise DefinitionError(msg)
    if database_named(call.options.database) != using:
        msg = f"{call.options.job_type} is stored on database {call.options.database!r}, and its batch on {using!r}."
        raise DefinitionError(msg)
