"""Messages from outside: each is taken once per consumer, however often and however concurrently it comes.

The row that says "taken" commits together with what taking it means: the job that works on it, or the caller's own
writes. A message whose id came before with other content, or that cannot be read, is put aside for a human.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from django.db import connections, router, transaction

from django_jobs import faults
from django_jobs.define.definition import DurableJob
from django_jobs.domain.identity import check_name
from django_jobs.domain.ids import uuid7
from django_jobs.domain.messages import NOTHING, SameAs
from django_jobs.domain.options import EnqueueOptions
from django_jobs.enqueue.backpressure import admit
from django_jobs.enqueue.enqueue import check_call, decide, new_job
from django_jobs.enqueue.hooked import captured, carrying, hooked
from django_jobs.enqueue.inside import in_transaction
from django_jobs.enqueue.prepared import Prepared, encode
from django_jobs.exceptions import DefinitionError, OutsideTransactionError, PayloadError
from django_jobs.models import InboxMessage
from django_jobs.outbox.arrivals import OTHER, Arrival, check_message, content_of
from django_jobs.outbox.consumers import arguments_for, consumer_name, consumer_options
from django_jobs.store import enqueue as store_job
from django_jobs.store.brief import briefly
from django_jobs.store.contention import run_again
from django_jobs.store.inbox import Address, hand_over

KEEP = timedelta(days=35)

Outcome = Literal["created", "duplicate", "quarantined"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What became of a message.

    Args:
        outcome: ``created`` (a job was stored for it), ``duplicate`` (it was taken before; nothing was stored) or
            ``quarantined`` (its id came before with other content, or it cannot be read; it is kept for a human).
        job_id: The job that works, or worked, on the message with this id; None when there is none.
        reason: Why it is in quarantine; empty otherwise.
    """

    outcome: Outcome
    job_id: uuid.UUID | None
    reason: str = ""


class _KeyHeldError(Exception):
    """A job with other arguments holds the key of the message: its row is undone, and it is put aside."""

    def __init__(self, job_id: uuid.UUID) -> None:
        super().__init__(job_id)
        self.job_id = job_id


def receive(
    source: str,
    message_id: str,
    data: Any,
    *,
    consumer: DurableJob[..., Any],
    same_as: SameAs | None = None,
    keep: timedelta = KEEP,
    using: str | None = None,
) -> Received:
    """Take a message from outside: store that it came, and the job that works on it, in one transaction.

    In a transaction of the caller it becomes part of that; else it is committed when this returns, and the sender may
    be told so. A message that comes again is a result, never an error, also when several come at one moment.

    Args:
        source: Who sent it, for example "payments"; ids are unique within it.
        message_id: The sender's id of the message, the same however often it is sent.
        data: The body as bytes (``request.body``), which is read as JSON and put aside if it is none; or JSON values.
        consumer: The job that works on it. Its handler takes ``data`` and, if it likes, ``message_id`` and ``source``.
            A ``key`` and a ``key_scope`` that it declares are not used: the message is the consumer's own key.
        same_as: A function of the data that returns what two bodies that mean the same have in common, for example
            the data without the time of sending. Default: all of it.
        keep: How long the id is remembered: longer than the sender goes on trying, resends by hand included.
        using: The database; default: where the consumer's jobs are.

    Raises:
        PayloadError: The values cannot be stored (bytes never raise it), or source or id is empty, too long or not
            printable ASCII (``KeyFormatError``).
        DefinitionError: The consumer, ``keep`` or the database cannot be used.
        QueueFullError: The consumer's queue is full. Nothing was stored; let the sender try again.
        HookError: A propagator failed, or what it captured cannot be stored.
        OutsideCompletionError: Inside a handler, outside of its completion.
        CrossDatabaseError: A transaction is open on another database.
        EnqueueContendedError: The message was pruned again and again while it was looked at; receive it once more.
    """
    check_message(source, message_id, keep)
    options = consumer_options(consumer, source=source, message_id=message_id, keep=keep, using=using)
    arrival = Arrival(
        address=Address(consumer=consumer_name(consumer), source=source, message_id=message_id),
        content=content_of(data, same_as),
        keep=keep,
        owner=options.owner,
        using=check_call(options),
    )
    prepared, arrival = _prepared(arrival, consumer, options, is_body=isinstance(data, bytes | bytearray | memoryview))
    nested = connections[arrival.using].in_atomic_block
    result = _received(arrival, prepared)
    if not nested:
        faults.reached("inbox.after_commit", using=arrival.using)
    arrival.tell(result.outcome, result.job_id)
    return result


def _prepared(
    arrival: Arrival, consumer: DurableJob[..., Any], options: EnqueueOptions, *, is_body: bool
) -> tuple[Prepared | None, Arrival]:
    """Write the job's arguments; a body that does not fit into them is one that cannot be read."""
    content, address = arrival.content, arrival.address
    if content.problem:
        return None, arrival
    message = {"data": content.data, "message_id": address.message_id, "source": address.source}
    try:
        return encode(options, arguments_for(consumer, message), arrival.using), arrival
    except PayloadError as error:
        if not is_body:
            raise
        return None, replace(arrival, content=replace(content, problem=str(error)))


def _received(arrival: Arrival, wanted: Prepared | None) -> Received:
    if wanted is None:
        return _together(lambda: _unreadable(arrival), arrival.using)
    with hooked([wanted]):
        return _taken_or_aside(arrival, carrying(wanted, captured()))


def _taken_or_aside(arrival: Arrival, prepared: Prepared) -> Received:
    try:
        return _together(lambda: _taken(arrival, prepared), arrival.using)
    except _KeyHeldError as held:
        job_id = held.job_id
        return _together(lambda: _aside(arrival, OTHER, job_id), arrival.using)


def _together(work: Callable[[], Received], using: str) -> Received:
    """Do the work in one transaction, or in a savepoint of the caller's: its rows come together or not at all."""

    if connections[using].in_atomic_block:
        with transaction.atomic(using=using):
            return _worked(work, using)

    def in_one() -> Received:
        with briefly(using):
            return _worked(work, using)

    return run_again(in_one)


def _worked(work: Callable[[], Received], using: str) -> Received:
    result = work()
    faults.reached("inbox.after_handler", using=using)
    return result


def _taken(arrival: Arrival, prepared: Prepared) -> Received:
    job_id = uuid7()
    before = arrival.take(job_id)
    if before is None:
        return _handed_over(arrival, prepared, job_id)
    if arrival.is_same(before):
        return Received(outcome="duplicate", job_id=before.job_id)
    return _aside(arrival, OTHER, before.job_id, before.data_digest)


def _handed_over(arrival: Arrival, prepared: Prepared, job_id: uuid.UUID) -> Received:
    """Store the job of a message that was just taken; its key may have outlived an earlier row of the same message."""
    admit([prepared])
    if store_job(new_job(prepared, job_id, None), using=arrival.using) is not None:
        return Received(outcome="created", job_id=job_id)
    held = decide(prepared)
    if held.outcome == "conflict":
        raise _KeyHeldError(held.id)
    hand_over(arrival.address, held.id, using=arrival.using)
    return Received(outcome="created" if held.created else "duplicate", job_id=held.id)


def _unreadable(arrival: Arrival) -> Received:
    before = arrival.before()
    first = (before.job_id, before.data_digest) if before else (None, "")
    return _aside(arrival, arrival.content.problem, *first)


def _aside(arrival: Arrival, reason: str, job_id: uuid.UUID | None, first_digest: str = "") -> Received:
    arrival.put_aside(reason, job_id=job_id, first_digest=first_digest)
    return Received(outcome="quarantined", job_id=job_id, reason=reason)


@contextmanager
def once(
    consumer: str,
    source: str,
    message_id: str,
    *,
    data: Any = None,
    same_as: SameAs | None = None,
    keep: timedelta = KEEP,
    using: str | None = None,
) -> Iterator[bool]:
    """Yield True the first time that the consumer meets the message, else False; for consumers that are not jobs.

    It needs an open transaction, in which the caller's writes and the row that says "taken" commit together. When the
    block raises, both are undone, also if the caller catches the error further out. ::

        with transaction.atomic(), inbox.once("stock", "shop", event_id) as first:
            if first:
                Item.objects.filter(pk=item).update(count=F("count") - 1)

    Args:
        consumer: A name of its own for each consumer.
        source: Who sent it; ids are unique within it.
        message_id: The sender's id of the message.
        data: To find out whether an id came before with other content, which is put aside and yields False. None
            compares nothing.
        same_as: As in :func:`receive`.
        keep: As in :func:`receive`.
        using: The database; default: where the router writes messages.

    Raises:
        OutsideTransactionError: No transaction is open on the database.
        PayloadError: The data cannot be stored, or a name is empty, too long or not printable ASCII.
        DefinitionError: ``keep`` or the database cannot be used.
        EnqueueContendedError: The message was pruned again and again while it was looked at.
    """
    check_name(consumer, what="consumer", limit=200)
    check_message(source, message_id, keep)
    arrival = Arrival(
        address=Address(consumer=consumer, source=source, message_id=message_id),
        content=NOTHING if data is None else content_of(data, same_as),
        keep=keep,
        owner="",
        using=_open_database(using),
    )
    with transaction.atomic(using=arrival.using):
        yield _is_first(arrival)
        faults.reached("inbox.after_handler", using=arrival.using)


def _open_database(using: str | None) -> str:
    alias = router.db_for_write(InboxMessage) if using is None or using == "" else using
    if not isinstance(alias, str) or alias not in connections:
        msg = f"There is no database {alias!r}; the settings have {', '.join(sorted(connections))}."
        raise DefinitionError(msg)
    if not in_transaction(connections[alias]):
        msg = "inbox.once() needs an open transaction, in which your writes and its row commit together: use atomic()."
        raise OutsideTransactionError(msg)
    return alias


def _is_first(arrival: Arrival) -> bool:
    if arrival.content.problem:
        result = _unreadable(arrival)
    else:
        before = arrival.take(None)
        if before is None:
            arrival.tell("taken", None)
            return True
        same = arrival.is_same(before)
        result = (
            Received(outcome="duplicate", job_id=before.job_id)
            if same
            else _aside(arrival, OTHER, before.job_id, before.data_digest)
        )
    arrival.tell(result.outcome, result.job_id)
    return False
