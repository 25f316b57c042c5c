"""One enqueue: canonical arguments, the decision about the key, one statement."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import Error as DatabaseFailure

from django_jobs import clock, telemetry
from django_jobs.domain.ids import uuid7
from django_jobs.domain.options import LONGEST_WAIT, EnqueueOptions
from django_jobs.domain.states import JobState
from django_jobs.enqueue.backpressure import admit
from django_jobs.enqueue.database import database_named
from django_jobs.enqueue.hooked import captured, carrying, hooked
from django_jobs.enqueue.inside import check_place, current
from django_jobs.enqueue.membership import note, open_batch
from django_jobs.enqueue.outcome import EnqueueResult, OutcomeName
from django_jobs.enqueue.prepared import Prepared, encode, encoded
from django_jobs.exceptions import (
    DefinitionError,
    DuplicateJobError,
    DuplicateOfDeadJobError,
    EnqueueContendedError,
    IdempotencyConflictError,
    JobsError,
    PayloadError,
)
from django_jobs.store import NewJob
from django_jobs.store import enqueue as store_job
from django_jobs.store.keys import KeyHolder, key_holder, note_duplicate, stored_arguments

TRIES = 5


def database_of(options: EnqueueOptions) -> str:
    """Return the alias on which jobs of these options are stored.

    Raises:
        DefinitionError: The settings have no such database.
    """
    return database_named(options.database)


def check_call(options: EnqueueOptions) -> str:
    """Check what does not depend on the arguments, and return the database.

    Raises:
        DefinitionError: The time or the database of this job cannot be.
        OutsideCompletionError: Inside a handler, outside of its completion.
        CrossDatabaseError: A transaction is open on another database.
    """
    using = database_of(options)
    _check_due(options.run_after)
    check_place(what="enqueue()", using=using, detached=options.detached)
    return using


def _check_due(run_after: object) -> None:
    """Refuse an instant so far ahead that it is a mistake of units; the process clock is good enough for that."""
    if isinstance(run_after, datetime) and run_after - clock.now() > LONGEST_WAIT:
        msg = f"run_after is more than {LONGEST_WAIT.days} days ahead: {run_after!r}."
        raise DefinitionError(msg)


def enqueue(options: EnqueueOptions, arguments: Mapping[str, Any]) -> EnqueueResult:
    """Record a job in the transaction that is open on its database, or at once when none is.

    Raises:
        PayloadError: The arguments cannot be stored.
        IdempotencyConflictError: The key is live with other arguments.
        DuplicateJobError: The key is live and the job type rejects duplicates (``DuplicateOfDeadJobError``, a subclass,
            when its job is a dead letter).
        QueueFullError: The queue is at its capacity, and the key (if there is one) has no job yet.
        HookError: A propagator failed, or what it captured cannot be stored.
        EnqueueContendedError: The key changed hands faster than it could be read.
        DatabaseError: As the database raised it, serialization failures and deadlocks included; nothing is retried.
    """
    wanted = encode(options, arguments, check_call(options))
    with hooked([wanted]) as results:
        prepared = carrying(wanted, captured())
        admit([prepared])
        result = answered(prepared)
        if result.outcome == "duplicate" and options.on_duplicate == "reject":
            raise _rejected(options, result)
        results.append(result)
    return result


def answered(prepared: Prepared) -> EnqueueResult:
    """Store the job, or return who holds its key; counted either way.

    Raises:
        IdempotencyConflictError: The key is live with other arguments.
    """
    result = decide(prepared)
    count(prepared.options, result)
    if result.outcome == "conflict":
        msg = (
            f"The idempotency key of {prepared.options.job_type} is held by job {result.id} with other arguments. "
            "Nothing was stored. Use the same arguments, another key, or wait until the key has expired."
        )
        raise IdempotencyConflictError(msg, job_id=result.id)
    return result


def _rejected(options: EnqueueOptions, result: EnqueueResult) -> DuplicateJobError:
    if result.state == JobState.DEAD_LETTERED and result.resolution is None:
        msg = (
            f"The idempotency key of {options.job_type} belongs to job {result.id}, which is dead-lettered: until a "
            "human replays or discards it, enqueueing again changes nothing."
        )
        return DuplicateOfDeadJobError(msg, job_id=result.id)
    msg = f"The idempotency key of {options.job_type} is held by job {result.id} (state {result.state})."
    return DuplicateJobError(msg, job_id=result.id)


def decide(prepared: Prepared) -> EnqueueResult:
    """Store the job or find out who holds its key; a conflict is returned, not raised."""
    replaces: uuid.UUID | None = None
    for _ in range(TRIES):
        new = new_job(prepared, uuid7(), replaces)
        state = store_job(new, using=prepared.using)
        if state is not None:
            outcome: OutcomeName = "created" if replaces is None else "created_after_expiry"
            return EnqueueResult(id=new.job_id, outcome=outcome, state=state, database=prepared.using)
        holder = key_holder(prepared.key_scope, prepared.key, using=prepared.using)
        if holder is None:
            replaces = None
        elif holder.is_live:
            return _held(prepared, holder)
        else:
            replaces = holder.job_id
    raise contended(prepared.options)


def contended(options: EnqueueOptions) -> EnqueueContendedError:
    """Return the error of a key that changed hands as often as it was tried."""
    msg = (
        f"The idempotency key of {options.job_type} changed hands {TRIES} times while it was read. "
        "Nothing was stored; enqueue once more."
    )
    return EnqueueContendedError(msg)


def _held(prepared: Prepared, holder: KeyHolder) -> EnqueueResult:
    result = answer(prepared, holder)
    if result.outcome == "duplicate" and note_duplicate(
        holder.job_id, dead=holder.waits_for_human, using=prepared.using
    ):
        tell_duplicate_of_dead(prepared, holder.job_id)
    return result


def tell_duplicate_of_dead(prepared: Prepared, job_id: uuid.UUID) -> None:
    """Tell the owner that a producer got a dead letter as its answer; what tells waits for the commit on ``using``."""
    options = prepared.options
    telemetry.emit(
        "owner.alert",
        reason="duplicate_of_dead",
        job_id=job_id,
        job_type=options.job_type,
        owner=options.owner,
        using=prepared.using,
    )


def answer(prepared: Prepared, holder: KeyHolder) -> EnqueueResult:
    """Return what the holder of a live key means for this enqueue; older arguments are upcast and compared."""
    fingerprint = _comparable(prepared, holder)
    conflicts = fingerprint is not None and fingerprint != prepared.fingerprint
    return EnqueueResult(
        id=holder.job_id,
        outcome="conflict" if conflicts else "duplicate",
        state=holder.state,
        resolution=holder.resolution,
        version_differs=fingerprint is None,
        database=prepared.using,
    )


def _comparable(prepared: Prepared, holder: KeyHolder) -> str | None:
    """Return the fingerprint of the holder's arguments in the present version; None: they cannot be compared.

    Nor can they while what an upcaster asks is away: the key has its answer, which needs no comparison.
    """
    options = prepared.options
    if holder.payload_version == options.version:
        return holder.payload_fingerprint
    if options.upcast is None or holder.payload_version > options.version:
        return None
    try:
        stored = json.loads(stored_arguments(holder.job_id, using=prepared.using))
        if not isinstance(stored, dict):
            return None
        return encoded(options.upcast(holder.payload_version, stored))[1]
    except (PayloadError, ValueError):
        return None
    except (JobsError, DatabaseFailure):
        raise
    except Exception:  # noqa: BLE001  an upcaster may raise anything
        return None


def count(options: EnqueueOptions, result: EnqueueResult) -> None:
    """Tell the batch that is open here of an enqueue, and telemetry of one that stored nothing."""
    note(result, detached=options.detached)
    if not result.created:
        telemetry.emit(
            f"enqueue.{result.outcome}",
            job_id=result.id,
            job_type=options.job_type,
            queue_name=options.queue_name,
            priority=options.priority,
        )


def new_job(prepared: Prepared, job_id: uuid.UUID, replaces: uuid.UUID | None) -> NewJob:
    """Return the row to store; inside a handler it continues the correlation and the trace of that job."""
    options, inside = prepared.options, current.get()
    after = options.run_after
    correlation_id = (inside.correlation_id or str(inside.job_id)) if inside else ""
    return NewJob(
        job_id=job_id,
        job_type=options.job_type,
        queue_name=options.queue_name,
        priority=options.priority,
        tenant=options.tenant,
        payload_version=options.version,
        payload_fingerprint=prepared.fingerprint,
        arguments=prepared.arguments,
        key_scope=prepared.key_scope,
        key=prepared.key,
        ttl_seconds=options.key_ttl.total_seconds(),
        replaces=replaces,
        run_after=after if isinstance(after, datetime) else None,
        delay=after if isinstance(after, timedelta) else None,
        useful_for=options.useful_for,
        owner=options.owner,
        resource=options.resource,
        serial_key=prepared.serial_key,
        serial_skips=options.serial_on_dead == "skip",
        correlation_id=prepared.correlation_id or correlation_id,
        subject=prepared.subject,
        traceparent=prepared.traceparent or (inside.traceparent if inside else ""),
        batch_id=open_batch(using=prepared.using, detached=options.detached),
        context=prepared.context,
    )
