"""One enqueue: canonical arguments, the decision about the key, one statement."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connections, router

from django_jobs import clock, telemetry
from django_jobs.conf import get_settings
from django_jobs.domain.identity import canonical, check_key, check_name, fingerprint, format_key, scope_text
from django_jobs.domain.ids import uuid7
from django_jobs.domain.options import LONGEST_WAIT, EnqueueOptions
from django_jobs.domain.states import JobState
from django_jobs.enqueue.inside import check_place, current
from django_jobs.enqueue.outcome import EnqueueResult, OutcomeName
from django_jobs.exceptions import (
    DefinitionError,
    DuplicateJobError,
    DuplicateOfDeadJobError,
    EnqueueContendedError,
    IdempotencyConflictError,
)
from django_jobs.models import Job
from django_jobs.store import NewJob
from django_jobs.store import enqueue as store_job
from django_jobs.store.keys import KeyHolder, key_holder, note_duplicate

TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A checked enqueue: no statement was run for it yet."""

    options: EnqueueOptions
    arguments: str
    fingerprint: str
    key: str
    key_scope: str
    subject: str
    using: str


def database_of(options: EnqueueOptions) -> str:
    """Return the alias on which jobs of these options are stored.

    Raises:
        DefinitionError: The settings have no such database.
    """
    using = options.database or router.db_for_write(Job)
    if using not in connections:
        msg = f"There is no database {using!r}; the settings have {', '.join(sorted(connections))}."
        raise DefinitionError(msg)
    return using


def prepare(options: EnqueueOptions, arguments: Mapping[str, Any]) -> Prepared:
    """Check and encode everything that can be wrong, before any SQL.

    Raises:
        PayloadError: The arguments cannot be stored, or the key or subject that they give.
        DefinitionError: The time or the database of this job cannot be.
        OutsideCompletionError: Inside a handler, outside of its completion.
        CrossDatabaseError: A transaction is open on another database.
    """
    rules = get_settings()
    text = canonical(dict(arguments), max_bytes=rules.payload_max_bytes, max_depth=rules.payload_max_depth)
    using = database_of(options)
    _check_due(options.run_after)
    check_place(what="enqueue()", using=using, detached=options.detached)
    return Prepared(
        options=options,
        arguments=text,
        fingerprint=fingerprint(text),
        key="" if options.key is None else check_key(_filled("key", options, arguments)),
        key_scope="" if options.key is None else scope_text(options.tenant, options.key_scope),
        subject=_subject(options, arguments),
        using=using,
    )


def _subject(options: EnqueueOptions, arguments: Mapping[str, Any]) -> str:
    if not options.subject:
        return ""
    return check_name(_filled("subject", options, arguments), what="subject", limit=200)


def _check_due(run_after: object) -> None:
    """Refuse an instant so far ahead that it is a mistake of units; the process clock is good enough for that."""
    if isinstance(run_after, datetime) and run_after - clock.now() > LONGEST_WAIT:
        msg = f"run_after is more than {LONGEST_WAIT.days} days ahead: {run_after!r}."
        raise DefinitionError(msg)


def _filled(name: str, options: EnqueueOptions, arguments: Mapping[str, Any]) -> str:
    text: str = getattr(options, name)
    return text if name in options.literal else format_key(text, arguments)


def enqueue(options: EnqueueOptions, arguments: Mapping[str, Any]) -> EnqueueResult:
    """Record a job in the transaction that is open on its database, or at once when none is.

    Raises:
        PayloadError: The arguments cannot be stored.
        IdempotencyConflictError: The key is live with other arguments.
        DuplicateJobError: The key is live and the job type rejects duplicates (``DuplicateOfDeadJobError``, a subclass,
            when its job is a dead letter).
        EnqueueContendedError: The key changed hands faster than it could be read.
        DatabaseError: As the database raised it, serialization failures and deadlocks included; nothing is retried.
    """
    result = decide(prepare(options, arguments))
    if result.outcome == "conflict":
        msg = (
            f"The idempotency key of {options.job_type} is held by job {result.id} with other arguments. Nothing was "
            "stored. Use the same arguments, another key, or wait until the key has expired."
        )
        raise IdempotencyConflictError(msg, job_id=result.id)
    if result.outcome == "duplicate" and options.on_duplicate == "reject":
        raise _rejected(options, result)
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
        new = _new_job(prepared, replaces)
        state = store_job(new, using=prepared.using)
        if state is not None:
            outcome: OutcomeName = "created" if replaces is None else "created_after_expiry"
            return EnqueueResult(id=new.job_id, outcome=outcome, state=state)
        holder = key_holder(prepared.key_scope, prepared.key, using=prepared.using)
        if holder is None:
            replaces = None
        elif holder.is_live:
            return _held(prepared, holder)
        else:
            replaces = holder.job_id
    msg = (
        f"The idempotency key of {prepared.options.job_type} changed hands {TRIES} times while it was read. "
        "Nothing was stored; enqueue once more."
    )
    raise EnqueueContendedError(msg)


def _held(prepared: Prepared, holder: KeyHolder) -> EnqueueResult:
    same_version = holder.payload_version == prepared.options.version
    if same_version and holder.payload_fingerprint != prepared.fingerprint:
        telemetry.emit("enqueue.conflict", job_id=holder.job_id, job_type=prepared.options.job_type)
        return _result(holder, "conflict")
    must_tell = note_duplicate(holder.job_id, dead=holder.waits_for_human, using=prepared.using)
    telemetry.emit("enqueue.duplicate", job_id=holder.job_id, job_type=prepared.options.job_type)
    if must_tell:
        telemetry.emit("owner.alert", reason="duplicate_of_dead", job_id=holder.job_id, owner=prepared.options.owner)
    return _result(holder, "duplicate", version_differs=not same_version)


def _result(holder: KeyHolder, outcome: OutcomeName, *, version_differs: bool = False) -> EnqueueResult:
    return EnqueueResult(
        id=holder.job_id,
        outcome=outcome,
        state=holder.state,
        resolution=holder.resolution,
        version_differs=version_differs,
    )


def _new_job(prepared: Prepared, replaces: uuid.UUID | None) -> NewJob:
    options, inside = prepared.options, current.get()
    after = options.run_after
    return NewJob(
        job_id=uuid7(),
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
        correlation_id=(inside.correlation_id or str(inside.job_id)) if inside else "",
        subject=prepared.subject,
        traceparent=inside.traceparent if inside else "",
    )
