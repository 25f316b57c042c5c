"""``batch``: jobs whose common end is waited for, and what follows when the last of them has ended."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, Self

from asgiref.sync import sync_to_async
from django.db import transaction

from django_jobs.domain.identity import check_key, check_name
from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import OnDead
from django_jobs.enqueue.batch_of_member import OfMember
from django_jobs.enqueue.batch_results import BatchResult, read
from django_jobs.enqueue.calls import Call, check_follows, for_later, kept
from django_jobs.enqueue.closing import COUNTS, ID, close_held
from django_jobs.enqueue.database import database_named
from django_jobs.enqueue.hooked import captured, carrying, hooked
from django_jobs.enqueue.inside import check_place, current
from django_jobs.enqueue.members import add, check_member
from django_jobs.enqueue.membership import Membership, joining
from django_jobs.enqueue.outcome import EnqueueResult
from django_jobs.enqueue.prepared import Prepared
from django_jobs.exceptions import (
    BatchError,
    DefinitionError,
    DuplicateBatchError,
)
from django_jobs.models import Batch as Row
from django_jobs.models import Job
from django_jobs.store.batches import create, standing
from django_jobs.store.times import read_now

OPTIONS = frozenset({"callback", "on_dead", "key", "owner", "database"})


def _callback(given: object) -> Call:
    call = check_follows(given, what="A batch")
    if call.pass_result:
        msg = f"pass_result is for links of a chain; {call.options.job_type} is the callback of a batch."
        raise DefinitionError(msg)
    return call


class Batch:
    """A batch whose members are the jobs that are enqueued inside its block; see ``batch``.

    ``with batch(callback=notify.prepare(order_id=7)) as b: charge.enqueue(...)`` stores the batch, its members and what
    follows in one transaction, the caller's if one is open. An error inside takes all of it back.

    ``async with batch(...) as b: b.add(charge.prepare(order_id=7))`` does the same at the end of its block: no
    transaction is open while the block waits for something, since other coroutines of the same thread would be in it.

    Args:
        callback: What is enqueued, once, when all members have ended. A parameter ``batch_id`` or ``batch_counts`` of
            its handler that was not given is filled in.
        on_dead: "block": a dead letter keeps the batch open until somebody replays or settles it, and the owner is
            told; "continue": it has ended like any other.
        key: Of the whole batch: a second one with it is a duplicate of the first.
        owner: Who is told.
        database: The alias; default: where the router writes jobs.

    Raises:
        DefinitionError: An argument cannot be.
        PayloadError: The arguments of the callback do not fit.
    """

    def __init__(
        self,
        *,
        callback: Call | None = None,
        on_dead: Literal["block", "continue"] = "block",
        key: str | None = None,
        owner: str = "",
        database: str | None = None,
    ) -> None:
        if on_dead not in [one.value for one in OnDead]:  # compared, not looked up: it may have no hash
            msg = f'on_dead must be "block" or "continue", not {on_dead!r}.'
            raise DefinitionError(msg)
        self._row = Row(
            id=uuid7(),
            key="" if key is None else check_key(key),
            on_dead=on_dead,
            owner="" if owner is None or owner == "" else check_name(owner, what="owner", limit=100),
        )
        self._callback = None if callback is None else _callback(callback)
        named = callback.options.database if callback is not None else None
        self.database = database_named(named if database is None or database == "" else database)
        if named and named != self.database:
            msg = f"The callback is bound to database {named!r}, and its batch to {self.database!r}."
            raise DefinitionError(msg)
        self._fills: dict[str, Any] = {}
        self._follows = self._encoded_callback()
        self._joined: Membership | None = None
        self._stack: ExitStack | None = None
        self._kept: list[Call] | None = None  # what an async block is to store at its end

    def _encoded_callback(self) -> Prepared | None:
        call = self._callback
        if call is None:
            return None
        known: dict[str, Any] = {ID: self.id} if ID in call.free else {}
        self._fills = {COUNTS: {}} if COUNTS in call.free else {}
        return for_later(call, self.database, **known, **self._fills)

    @contextmanager
    def _promising(self) -> Iterator[None]:
        """Run the block, which stores the batch, inside of the middleware around what follows."""
        follows, row = self._follows, self._row
        if follows is None:
            yield
            return
        with hooked([follows]):
            row.callback_type = follows.options.job_type
            row.callback = kept(carrying(follows, captured()), fills=list(self._fills))
            yield

    @property
    def id(self) -> uuid.UUID:
        """The batch's id."""
        pk: uuid.UUID = self._row.pk
        return pk

    @property
    def created(self) -> int:
        """How many members were made here."""
        return self._members.created

    @property
    def duplicates(self) -> list[EnqueueResult]:
        """What was asked for here and was not made, because another job has its key: the batch does not wait for it."""
        return list(self._members.duplicates)

    def __enter__(self) -> Self:
        """Store the batch; what is enqueued on its database until the end of the block is a member.

        Raises:
            DuplicateBatchError: A batch with this key is there.
            HookError: A propagator failed, or what it captured cannot be stored.
        """
        check_place(what="batch()", using=self.database, detached=False)
        self._check_unused()
        with ExitStack() as stack:
            stack.enter_context(transaction.atomic(using=self.database))
            with self._promising():  # inside of the transaction: what it raises when it is left undoes that too
                self._row.created_at = read_now(self.database)
                there = create(self._row, using=self.database)
                if there != self.id:
                    msg = f"A batch with this key is there: {there}. Nothing was stored."
                    raise DuplicateBatchError(msg, batch_id=there)
            self._joined = stack.enter_context(joining(Membership(batch_id=self.id, using=self.database)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> bool | None:
        """Commit, or leave that to the caller's transaction; a batch without members is closed at once."""
        stack, self._stack = self._stack, None
        assert stack is not None  # noqa: S101  __enter__ has set it
        if error[0] is not None:
            return stack.__exit__(*error)
        with stack:
            found = standing(self.id, using=self.database)
            if found.may_close(self._row.on_dead):
                close_held(self._row, found, using=self.database)
        return None

    def _check_unused(self) -> None:
        if self._joined is not None or self._kept is not None:
            msg = "A batch is made by one block; make another one with batch(...)."
            raise BatchError(msg)

    async def __aenter__(self) -> Self:
        """Keep what ``add()`` is given until the end of the block; nothing is stored before."""
        self._check_unused()
        self._kept = []
        with ExitStack() as stack:
            stack.enter_context(joining(Membership(batch_id=self.id, using=self.database, is_later=True)))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: Any) -> None:
        """Store the batch and its members in one transaction; after an error nothing.

        Raises:
            DuplicateBatchError: A batch with this key is there.
            IdempotencyConflictError: A key is live with other arguments.
            QueueFullError: A queue is full. In each case nothing was stored.
        """
        stack, self._stack = self._stack, None
        assert stack is not None  # noqa: S101  __aenter__ has set it
        stack.close()
        kept, self._kept = self._kept or [], None
        if error[0] is None:
            await sync_to_async(self._store, thread_sensitive=True)(kept)

    def _store(self, calls: Iterable[Call]) -> None:
        with self:
            self.add(*calls)

    def add(self, *calls: Call) -> list[EnqueueResult]:
        """Enqueue prepared calls as members, inside the block; those of one job type by one statement.

        Returns:
            One result per call; in an async block none, because they are stored at its end: see ``duplicates`` then.

        Raises:
            BatchError: The block has ended.
            IdempotencyConflictError: A key is live with other arguments.
        """
        if self._kept is not None:
            for call in calls:
                check_member(call, using=self.database)
            self._kept += calls
            return []
        if self._stack is None:
            msg = "Members are added inside the with block of the batch, or by a running member: batch.current().add()."
            raise BatchError(msg)
        return add(calls, using=self.database)

    def refresh(self) -> BatchResult:
        """Read how the batch stands now."""
        return read(self.id, using=self.database)

    async def arefresh(self) -> BatchResult:
        """Do what :meth:`refresh` does, from async code."""
        return await sync_to_async(self.refresh, thread_sensitive=True)()

    @property
    def _members(self) -> Membership:
        if self._joined is None:
            msg = "The batch is not stored yet: enqueue its members inside its with block."
            raise BatchError(msg)
        return self._joined

    @classmethod
    def enqueue(cls, calls: Iterable[Call], **options: Any) -> BatchResult:
        """Store a batch with these members; takes the options of ``batch``.

        Returns:
            The batch; with ``outcome="duplicate"`` the one that has its key, and nothing was stored.

        Raises:
            DefinitionError: An option cannot be, or these are no calls.
        """
        unknown = sorted(set(options) - OPTIONS)
        if unknown:
            msg = f"batch has no option {unknown[0]!r}; it takes {', '.join(sorted(OPTIONS))}."
            raise DefinitionError(msg)
        if not isinstance(calls, Iterable):
            msg = f"batch.enqueue() takes a list of calls such as [charge.prepare(order_id=7)], not {calls!r}."
            raise DefinitionError(msg)
        new = cls(**options)
        try:
            new._store(calls)
        except DuplicateBatchError as error:
            return read(error.batch_id, using=new.database, outcome="duplicate")
        return read(new.id, using=new.database, outcome="created")

    @classmethod
    async def aenqueue(cls, calls: Iterable[Call], **options: Any) -> BatchResult:
        """Do what :meth:`enqueue` does, from async code."""
        return await sync_to_async(functools.partial(cls.enqueue, calls, **options), thread_sensitive=True)()

    @classmethod
    def current(cls) -> OfMember | None:
        """Return the batch whose member is running here, so that it can add members before it ends; None outside."""
        inside = current.get()
        if inside is None:
            return None
        rows = Job.objects.using(inside.database).filter(pk=inside.job_id)
        batch_id = rows.values_list("batch_id", flat=True).first()
        return None if batch_id is None else OfMember(id=batch_id, database=inside.database)


batch = Batch
