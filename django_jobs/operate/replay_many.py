"""The replay of many dead letters: a preview with a count per class, and a request that a worker carries out."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import ReplayState
from django_jobs.exceptions import ActionChangedError, OperatorError
from django_jobs.models import ReplayRequest
from django_jobs.operate.action import Acknowledgement, Decision, Operator, Plan, Target
from django_jobs.operate.job_decision import checked_extra
from django_jobs.operate.lookup import JobNotFoundError
from django_jobs.operate.replay import type_permissions
from django_jobs.operate.replay_classes import BULK, CLASSES, HARMLESS, MOST, NOT_DEAD, REFUSED, counted_classes
from django_jobs.operate.replay_plan import LABELS, OnReplay
from django_jobs.operate.selection import Selection
from django_jobs.operate.wording import counted
from django_jobs.store.replay_requests import ACTIVE, create, finish, lock_request

MOST_PER_MINUTE = 60_000
MOST_CANARY = 1000
SAFE: tuple[str, ...] = tuple(item.value for item in HARMLESS)
_TOLD = {
    **{item.value: LABELS[item] for item in OnReplay},
    REFUSED: "cannot be replayed",
    NOT_DEAD: "no dead letter",
}


class ReplayMany(Decision):
    """Ask that a worker replays the dead letters of a selection, job by job, each with its own audit row.

    Only jobs whose plan falls into an acknowledged class at the moment of their replay are replayed, and only as dead
    as they were when this was asked: what dies later is left alone. What needs a decision is never replayed in bulk.

    Args:
        selection: Which.
        using: The database alias.
        acknowledged: The classes to replay; by default those in which nothing can happen twice.
        extra_attempts: What each job is granted besides, 0 to 100.
        per_minute: The pace, 1 to 60,000.
        canary: So many are replayed first; the rest follows when they succeeded, and if one dies nothing does.

    Raises:
        OperatorError: A value is none of these.
    """

    name = "replay_many"
    permission = "replay_job_bulk"

    def __init__(
        self,
        selection: Selection,
        *,
        using: str,
        acknowledged: Collection[str] = SAFE,
        extra_attempts: int = 0,
        per_minute: int = 60,
        canary: int = 0,
    ) -> None:
        super().__init__(using=using)
        self.selection = selection
        self.acknowledged = _classes(acknowledged)
        self.extra_attempts = checked_extra(extra_attempts)
        self.per_minute = _number("per_minute", per_minute, 1, MOST_PER_MINUTE)
        self.canary = _number("canary", canary, 0, MOST_CANARY)
        self.request_id = uuid7()
        self._types: set[str] = set()
        self._total = 0

    def lock(self) -> None:
        """Lock nothing: each job is judged anew, under its own lock, when its turn comes."""

    def more_permissions(self) -> tuple[str, ...]:
        """Return the permissions that the job types of the selection name for their replays."""
        jobs = self.selection.jobs(using=self.using)
        return type_permissions(set(jobs.order_by().values_list("job_type", flat=True).distinct()))

    def plan(self) -> Plan:
        """Count what would be replayed, per class; reads a fixed number of rows per job."""
        counts, types, bounded = counted_classes(self.selection, using=self.using)
        self._types, self._total = types, sum(counts[name] for name in self.acknowledged)
        return Plan(
            action=self.name,
            title=f"Replay {counted(self._total, 'dead letter')} of {counts.total()} selected",
            refused=self._refused(bounded=bounded),
            facts={
                "selection": self.selection.as_dict(),
                "counts": {name: counts[name] for name in CLASSES if counts[name]},
                "acknowledged": list(self.acknowledged),
                "job_types": sorted(types),
                "total": self._total,
                "extra_attempts": self.extra_attempts,
                "per_minute": self.per_minute,
                "canary": self.canary,
            },
            lines=tuple(self._lines(counts)),
            acknowledge=tuple(self._acknowledge(counts)),
        )

    def _refused(self, *, bounded: bool) -> str:
        if bounded:
            return f"More than {MOST} jobs are selected; narrow the filter, for example by the time of their death."
        if not self._total:
            return "No selected job falls into a class that is to be replayed."
        return ""

    def _lines(self, counts: Mapping[str, int]) -> Iterator[str]:
        for name in CLASSES:
            if counts.get(name):
                verb = "replayed" if name in self.acknowledged else "left alone"
                yield f"{_TOLD[name]}: {counted(counts[name], 'job')}, {verb}"
        yield f"At {self.per_minute} a minute: about {counted(-(-self._total // self.per_minute), 'minute')}."
        if self.canary:
            yield f"First {self.canary}; the rest follows when they succeeded, nothing if one of them dies."

    def _acknowledge(self, counts: Mapping[str, int]) -> Iterator[Acknowledgement]:
        yield Acknowledgement(name="count", label=f"{counted(self._total, 'job')} will be replayed.")
        again = OnReplay.MAY_REPEAT.value
        if again in self.acknowledged and counts.get(again):
            yield Acknowledgement(
                name=again, label=f"With {counted(counts[again], 'job')} an effect or a row may happen a second time."
            )

    def target(self) -> Target:
        """Name the request that is made."""
        return Target(request_id=self.request_id)

    def act(self, operator: Operator, action_id: uuid.UUID) -> tuple[str, Mapping[str, Any]]:  # noqa: ARG002
        """Store the request."""
        values = {
            "actor": operator.actor,
            "owner": operator.owner,
            "reason_code": operator.reason_code,
            "reason": operator.reason,
            "ticket": operator.ticket,
            "selection": json.dumps({**self.selection.as_dict(), "job_types": sorted(self._types)}),
            "acknowledged": json.dumps(list(self.acknowledged)),
            "extra_attempts": self.extra_attempts,
            "per_minute": self.per_minute,
            "canary": self.canary,
            "total": self._total,
        }
        create(self.request_id, values, using=self.using)
        return (
            f"Replay request {self.request_id} for {counted(self._total, 'job')} waits for a worker.",
            {"request": str(self.request_id), "total": self._total},
        )


class CancelReplay(Decision):
    """End a replay request: what it replayed stays replayed, the rest is left alone."""

    name = "cancel_replay"
    permission = "cancel_replayrequest"

    def __init__(self, request_id: uuid.UUID, *, using: str) -> None:
        super().__init__(using=using)
        if not isinstance(request_id, uuid.UUID):
            msg = f"A replay request is named by its id, a UUID, not {request_id!r}."
            raise OperatorError(msg)
        self.request_id = request_id

    def _row(self) -> ReplayRequest:
        row = ReplayRequest.objects.using(self.using).filter(pk=self.request_id).first()
        if row is None:
            msg = f"There is no replay request {self.request_id} in database {self.using!r}."
            raise JobNotFoundError(msg)
        return row

    def lock(self) -> None:
        """Lock the request."""
        lock_request(self.request_id, using=self.using)

    def plan(self) -> Plan:
        """Say whether it can be ended; how far it is changes all the time and is no part of the facts.

        Raises:
            JobNotFoundError: There is no such request.
        """
        row = self._row()
        active = row.state in ACTIVE
        turns = row.items.using(self.using).count()
        return Plan(
            action=self.name,
            title=f"Cancel replay request {row.pk}",
            refused="" if active else f"It is over: {row.state}.",
            facts={"request": str(row.pk), "active": active, "total": row.total},
            lines=(
                f"Asked for by {row.actor}: {row.reason}",
                f"{counted(turns, 'job')} had a turn.",
            ),
        )

    def target(self) -> Target:
        """Name the request."""
        return Target(request_id=self.request_id, from_state=self._row().state)

    def act(self, operator: Operator, action_id: uuid.UUID) -> tuple[str, Mapping[str, Any]]:  # noqa: ARG002
        """End it.

        Raises:
            ActionChangedError: It ended meanwhile.
        """
        if not finish(
            self.request_id, ReplayState.CANCELLED, using=self.using, because=f"cancelled by {operator.actor}"
        ):
            msg = "The request ended while it was decided about; nothing was done."
            raise ActionChangedError(msg, plan=self.plan())
        return f"Replay request {self.request_id} is cancelled.", {"state": ReplayState.CANCELLED.value}


def _classes(names: Collection[str]) -> tuple[str, ...]:
    allowed = [item.value for item in BULK]
    for name in names:
        if name == OnReplay.NEEDS_DECISION:
            msg = "What needs a decision is never replayed in bulk: resolve the effect, then replay the job."
            raise OperatorError(msg)
        if name not in allowed:
            msg = f"A class to replay is one of {', '.join(allowed)}, not {name!r}."
            raise OperatorError(msg)
    if not names or isinstance(names, str):
        msg = f"Name at least one class to replay: {', '.join(allowed)}."
        raise OperatorError(msg)
    return tuple(name for name in allowed if name in names)


def _number(what: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        msg = f"{what} must be a whole number from {least} to {most}, not {value!r}."
        raise OperatorError(msg)
    return value
