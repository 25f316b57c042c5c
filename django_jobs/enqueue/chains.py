"""``chain``: jobs of which each is enqueued by the transaction that records the success of the one before."""

from __future__ import annotations

import json
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

from asgiref.sync import sync_to_async
from django.db import transaction

from django_jobs import faults, telemetry
from django_jobs.domain.identity import check_key, check_name
from django_jobs.domain.ids import checked_id, uuid7
from django_jobs.domain.states import JobState
from django_jobs.enqueue.backpressure import admit
from django_jobs.enqueue.calls import Call, check_follows, for_later, job_of, kept
from django_jobs.enqueue.closing import enqueue_kept
from django_jobs.enqueue.database import database_named
from django_jobs.enqueue.enqueue import check_call, new_job
from django_jobs.enqueue.hooked import captured, carrying, hooked
from django_jobs.enqueue.membership import note
from django_jobs.enqueue.outcome import EnqueueResult
from django_jobs.enqueue.prepared import Prepared
from django_jobs.exceptions import DefinitionError, ResultGoneError
from django_jobs.models import Chain as Row
from django_jobs.models import ChainLink
from django_jobs.store import enqueue as store_job
from django_jobs.store.batches import is_closed
from django_jobs.store.chains import Stand, create, links_of, next_link, note_enqueued, stands_of
from django_jobs.store.keys import PRUNED
from django_jobs.store.times import read_now

MOST = 1000
WAITING = "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One place of a chain.

    Args:
        state: That of its job, "waiting" before there is one. Of a job that was pruned how it had ended, or "pruned"
            when nothing tells any more.
        is_pruned: There was a job, and its rows are gone.
    """

    position: int
    job_type: str
    job_id: uuid.UUID | None
    state: str
    resolution: str | None = None
    is_pruned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainResult:
    """A chain as it stood when it was read; nothing here changes by itself.

    Args:
        id: The chain.
        database: The alias on which it is stored.
        outcome: ``created`` by this call, ``duplicate`` when its key answered, ``read`` by :meth:`refresh`.
        links: Its places, in order.
    """

    id: uuid.UUID
    database: str
    outcome: Literal["created", "duplicate", "read"]
    links: tuple[Link, ...]

    @property
    def state(self) -> str:
        """Say how it stands.

        succeeded (all have) · stopped (a link is a dead letter that waits for a human; its success after a replay goes
        on) · ended (a link was cancelled, or settled: nothing follows) · pruned (the last link ended, and how is not
        known any more) · running (all else).
        """
        if all(link.state == JobState.SUCCEEDED for link in self.links):
            return "succeeded"
        reached = [link for link in self.links if link.state != WAITING]
        last = reached[-1] if reached else self.links[0]
        if last.state == PRUNED:  # its success would have enqueued what waits behind it
            return PRUNED if last is self.links[-1] else "ended"
        if last.state == JobState.CANCELLED or last.resolution is not None:
            return "ended"
        return "stopped" if last.state == JobState.DEAD_LETTERED else "running"

    def refresh(self) -> ChainResult:
        """Read how the chain stands now.

        Raises:
            ResultGoneError: It was pruned, or never committed.
        """
        return read(self.id, using=self.database)

    async def arefresh(self) -> ChainResult:
        """Do what :meth:`refresh` does, from async code."""
        return await sync_to_async(self.refresh, thread_sensitive=True)()


def read(chain_id: uuid.UUID, *, using: str, outcome: Literal["created", "duplicate", "read"] = "read") -> ChainResult:
    """Read a chain where it is written.

    Raises:
        ResultGoneError: There is no such chain.
    """
    rows = links_of(chain_id, using=using)
    if not rows:
        msg = f"There is no chain {chain_id} on database {using!r}: it never committed, or was pruned."
        raise ResultGoneError(msg)
    stands = stands_of(rows, using=using)
    return ChainResult(
        id=chain_id,
        database=using,
        outcome=outcome,
        links=tuple(_link(row, stands) for row in rows),
    )


def _link(row: ChainLink, stands: dict[uuid.UUID, Stand]) -> Link:
    stand = Stand(state=WAITING) if row.job_id is None else stands[row.job_id]
    return Link(
        position=row.position,
        job_type=row.job_type,
        job_id=row.job_id,
        state=stand.state,
        resolution=stand.resolution,
        is_pruned=stand.is_pruned,
    )


class Chain:
    """Calls of which each runs when the one before has succeeded; ``enqueue()`` stores them.

    ``chain(reserve.prepare(order_id=7), charge.prepare(order_id=7)).enqueue()``. The keys of the jobs are made of the
    chain's id and their place; keys that their types declare are not used.

    Args:
        *calls: What ``prepare()`` of a job returns; with ``.using(pass_result="name")`` a call gets the result of the
            job before it as that argument.
        key: Of the whole chain: a second one with it is a duplicate of the first.
        owner: Who answers for it.
        database: The alias; default: where the router writes jobs.

    Raises:
        DefinitionError: There is no call, or one that cannot be a link.
        PayloadError: The arguments of a link cannot be stored.
    """

    def __init__(self, *calls: Call, key: str | None = None, owner: str = "", database: str | None = None) -> None:
        if not 1 <= len(calls) <= MOST:
            msg = f"A chain has from 1 to {MOST} links, not {len(calls)}."
            raise DefinitionError(msg)
        self._calls = [check_follows(call, what="A chain") for call in calls]
        self._key = "" if key is None else check_key(key)
        self._owner = "" if owner is None or owner == "" else check_name(owner, what="owner", limit=100)
        named = self._calls[0].options.database
        self.database = database_named(named if database is None or database == "" else database)
        for call in self._calls:
            self._check(call)

    def _check(self, call: Call) -> None:
        options = call.options
        if options.detached:
            msg = f"{options.job_type} is detached, so it cannot be a link of a chain."
            raise DefinitionError(msg)
        if options.database and options.database != self.database:
            msg = f"{options.job_type} is bound to database {options.database!r}, and its chain to {self.database!r}."
            raise DefinitionError(msg)
        if call.pass_result and call is self._calls[0]:
            msg = f"{options.job_type} is the first link: there is no result that could be passed to it."
            raise DefinitionError(msg)

    def enqueue(self) -> ChainResult:
        """Store the chain and enqueue its first job, in the transaction that is open, or in one of its own.

        Raises:
            PayloadError: The arguments of a link cannot be stored.
            QueueFullError: The queue of the first job is full. Nothing was stored.
            HookError: A propagator failed, or what it captured cannot be stored.
        """
        first = check_call(replace(self._calls[0].options, database=self.database))
        wanted = [self._encoded(call) for call in self._calls]
        with ExitStack() as stack:
            for link in wanted:
                stack.enter_context(hooked([link]))
            context = captured()
            return self._stored([carrying(link, context) for link in wanted], first)

    def _stored(self, encoded: list[Prepared], first: str) -> ChainResult:
        admit([encoded[0]])
        with transaction.atomic(using=first):
            row = Row(
                id=uuid7(), key=self._key, owner=self._owner, length=len(encoded), created_at=read_now(self.database)
            )
            there = create(row, self._links(row, encoded), using=self.database)
            if there != row.pk:
                return read(there, using=self.database, outcome="duplicate")
            self._begin(row, encoded[0])
        return read(row.pk, using=self.database, outcome="created")

    async def aenqueue(self) -> ChainResult:
        """Do what :meth:`enqueue` does, from async code."""
        return await sync_to_async(self.enqueue, thread_sensitive=True)()

    def _encoded(self, call: Call) -> Prepared:
        more = {call.pass_result: None} if call.pass_result else {}
        return for_later(call, self.database, **more)

    def _links(self, row: Row, encoded: list[Prepared]) -> list[ChainLink]:
        return [
            ChainLink(
                id=uuid7(),
                chain_id=row.pk,
                position=position,
                job_type=call.options.job_type,
                pass_result=call.pass_result,
                call=kept(prepared, fills=[call.pass_result] if call.pass_result else []),
            )
            for position, (call, prepared) in enumerate(zip(self._calls, encoded, strict=True), start=1)
        ]

    def _begin(self, row: Row, first: Prepared) -> None:
        link = next_link(row.pk, 0, using=self.database)
        assert link is not None  # noqa: S101  it was stored a moment ago
        like = new_job(first, uuid7(), None)  # goes on in the story of the handler that is running here, if any
        new = job_of(
            link.call,
            key=_key(row.pk, 1),
            known={},
            correlation_id=like.correlation_id or str(row.pk),
            traceparent=like.traceparent,
            batch_id=like.batch_id,
            chain=(row.pk, 1),
        )
        state = store_job(new, using=self.database) or JobState.QUEUED
        note_enqueued(link, new.job_id, using=self.database)
        note(EnqueueResult(id=new.job_id, outcome="created", state=state, database=self.database), detached=False)


def _key(chain_id: uuid.UUID, position: int) -> str:
    return f"chain:{chain_id}:{position}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Former:
    """The link whose success is being recorded."""

    chain_id: uuid.UUID
    position: int
    batch_id: uuid.UUID | None
    correlation_id: str
    traceparent: str
    using: str


def enqueue_next(former: Former, *, result: str | None) -> uuid.UUID | None:
    """Enqueue what follows a link, in the transaction that records the link's success; a full queue takes it.

    ``result`` is the stored result of the link. Returns the next job; None at the end of the chain.
    """
    link = next_link(former.chain_id, former.position, using=former.using)
    if link is None:
        return None
    batch_id = former.batch_id
    if batch_id is not None and is_closed(batch_id, using=former.using):
        batch_id = None  # the former was replayed after that
    new = job_of(
        link.call,
        key=_key(former.chain_id, link.position),
        known={link.pass_result: None if result is None else json.loads(result)},
        correlation_id=former.correlation_id,
        traceparent=former.traceparent,
        batch_id=batch_id,
        chain=(former.chain_id, link.position),
    )
    job_id = enqueue_kept(new, using=former.using)
    note_enqueued(link, job_id, using=former.using)
    faults.reached("chain.after_next", using=former.using)
    telemetry.emit("chain.next", chain_id=former.chain_id, position=link.position, job_id=job_id)
    return job_id


def chain_result(chain_id: uuid.UUID | str, *, database: str | None = None) -> ChainResult:
    """Read a chain by its id, for example one that a former request made.

    Raises:
        ResultGoneError: There is no such chain, or it was pruned.
        DefinitionError: This is no id, or the settings have no such database.
    """
    found = checked_id(chain_id, what="chain")
    return read(found, using=database_named(database))


chain = Chain
