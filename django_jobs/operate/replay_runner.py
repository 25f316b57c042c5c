"""Carrying out replay requests, a slice at a time; run twice, or by two workers, it does nothing twice.

Each job is judged under its own lock by the same decision as a single replay. What it did is a row of the request,
unique per job, in the transaction of the replay.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, InterfaceError

from django_jobs.domain.states import JobState, ReplayOutcome, ReplayState
from django_jobs.exceptions import ActionChangedError, ActionRefusedError, RowBusyError
from django_jobs.models import Job, ReplayItem, ReplayRequest
from django_jobs.operate.action import Operator, Plan, Target
from django_jobs.operate.history import JobHistory
from django_jobs.operate.lookup import JobNotFoundError
from django_jobs.operate.replay import Replay
from django_jobs.operate.replay_classes import NOT_DEAD, class_of
from django_jobs.operate.replay_plan import LABELS, OnReplay, ReplayPlan
from django_jobs.operate.selection import selection_of
from django_jobs.store.replay_requests import finish, is_due, keep, lock_request, move_on, note_item, take
from django_jobs.store.times import read_now
from django_jobs.worker.chores import Chore

logger = logging.getLogger("django_jobs.operator")

LEASE = timedelta(seconds=60)
SLICE = 20  # jobs of one turn
TRIES = 3  # a job that changes between its plan and its replay is looked at again
BURST = timedelta(seconds=1)  # so much of the pace may be used at once
BUSY = 1.0  # seconds after which a row that somebody holds is tried again
LOOK_AT_CANARY = timedelta(seconds=2)
FAILED = "failed"  # the class of a job whose plan could not be made


class RequestOverError(Exception):
    """The request ended, or was cancelled, before this job had its turn."""


class RequestedReplay(Replay):
    """The replay of one job of a request."""

    def __init__(self, job_id: uuid.UUID, request: ReplayRequest, *, using: str) -> None:
        super().__init__(job_id, using=using, extra_attempts=request.extra_attempts)
        self.request = request
        self.class_name = ""

    def lock(self) -> None:
        """Lock the request, then the job and its effects: whoever cancels the request waits, or nothing is replayed.

        Raises:
            RequestOverError: The request is over.
        """
        if not lock_request(self.request.pk, using=self.using):
            raise RequestOverError
        super().lock()

    def refused(self, history: JobHistory, found: ReplayPlan) -> str:
        """Refuse besides what nobody acknowledged for many."""
        self.class_name = class_of(history, found, taken_back="")
        if self.class_name == NOT_DEAD:
            return f"It is no open dead letter any more: {history.job.resolution or history.job.state}."
        if history.job.dead_at is None or history.job.dead_at > self.request.created_at:
            self.class_name = NOT_DEAD
            return "It died again after the request was made."
        said = super().refused(history, found)
        if said:
            return said
        if self.class_name not in json.loads(self.request.acknowledged):
            return f"Its class, {LABELS[OnReplay(self.class_name)]!r}, was not acknowledged."
        if history.job.job_type not in json.loads(self.request.selection).get("job_types", [history.job.job_type]):
            return f"Job type {history.job.job_type} was not in the preview."
        return ""

    def target(self) -> Target:
        """Name the job and the request."""
        before = super().target()
        return Target(
            job_id=before.job_id,
            request_id=self.request.pk,
            from_state=before.from_state,
            from_revision=before.from_revision,
            from_generation=before.from_generation,
        )

    def act(self, operator: Operator, action_id: uuid.UUID) -> tuple[str, Mapping[str, Any]]:
        """Record the item and begin the new generation.

        Raises:
            ActionChangedError: The request had this job already, or the row is not what the plan saw.
        """
        if not note_item(self.request.pk, self.job_id, ReplayOutcome.QUEUED, using=self.using):
            msg = "This request replayed the job already; nothing was done."
            raise ActionChangedError(msg)
        return super().act(operator, action_id)


def turn(worker_id: uuid.UUID, *, using: str) -> float | None:
    """Work on one request for a slice.

    Returns:
        After how many seconds to come back; None when there is nothing to do.
    """
    request = take(worker_id, lease=LEASE, using=using)
    if request is None:
        return None
    now = read_now(using)
    if request.next_at > now:
        return (request.next_at - now).total_seconds()
    waits = _canary(request, using)
    if waits is not None:
        move_on(request, worker_id, using=using, last_job_id=request.last_job_id, next_at=now + waits)
        return waits.total_seconds()
    return _slice(request, worker_id, using)


REPLAYS = Chore(name="replays", is_due=is_due, turn=lambda worker_id, using: turn(worker_id, using=using))


def _slice(request: ReplayRequest, worker_id: uuid.UUID, using: str) -> float:
    selection = selection_of(request.selection)
    page = selection.page(using=using, after=request.last_job_id, limit=SLICE, dead_until=request.created_at)
    if not page:
        finish(request.pk, ReplayState.DONE, using=using)
        return 0.0
    pace, next_at = timedelta(minutes=1) / request.per_minute, read_now(using)
    for job in page:
        if not keep(request, worker_id, lease=LEASE, using=using):
            return 0.0  # cancelled, or another worker has it
        try:
            queued = replay_one(request, job.pk, using=using)
        except RowBusyError:
            return BUSY
        next_at += pace if queued else timedelta(0)
        move_on(request, worker_id, using=using, last_job_id=job.pk, next_at=next_at)
        if next_at > read_now(using) + max(BURST - pace, timedelta(0)) or (queued and _is_canary_full(request, using)):
            break
    return max(0.0, (next_at - read_now(using)).total_seconds())


def replay_one(request: ReplayRequest, job_id: uuid.UUID, *, using: str) -> bool:
    """Replay one job of a request, or record why not; a job that had its turn is left alone, all once it is over.

    Returns:
        Whether it was replayed now.

    Raises:
        RowBusyError: Somebody holds its row; nothing was written.
    """
    if ReplayItem.objects.using(using).filter(request_id=request.pk, job_id=job_id).exists():
        return False
    decision = RequestedReplay(job_id, request, using=using)
    why = "It changed again and again."
    for _ in range(TRIES):
        try:
            decision.submit(_operator(request), digest=_digest(decision.plan()))
        except ActionChangedError:
            continue
        except RequestOverError:
            return False
        except (ActionRefusedError, JobNotFoundError) as error:
            why = str(error)
            break
        except (RowBusyError, DatabaseError, InterfaceError):
            raise
        except Exception as error:  # a job whose plan cannot be made must not keep the others waiting
            logger.exception("Job %s of replay request %s could not be replayed", job_id, request.pk)
            decision.class_name, why = decision.class_name or FAILED, f"It failed: {type(error).__name__}."
            break
        else:
            return True
    outcome = ReplayOutcome.UNCHANGED if decision.class_name in (NOT_DEAD, "") else ReplayOutcome.REFUSED
    note_item(request.pk, job_id, outcome, using=using, why=why)
    return False


def _digest(plan: Plan) -> str:
    if plan.refused:
        raise ActionRefusedError(plan.refused, plan=plan)
    return plan.digest


def _operator(request: ReplayRequest) -> Operator:
    return Operator(
        actor=request.actor,
        owner=request.owner,
        reason=request.reason,
        reason_code=request.reason_code,
        ticket=request.ticket,
    )


def _queued_items(request: ReplayRequest, using: str) -> list[uuid.UUID]:
    items = ReplayItem.objects.using(using).filter(request_id=request.pk, outcome=ReplayOutcome.QUEUED.value)
    return list(items.order_by("created_at", "id").values_list("job_id", flat=True)[: request.canary])


def _is_canary_full(request: ReplayRequest, using: str) -> bool:
    if not request.canary:
        return False
    items = ReplayItem.objects.using(using).filter(request_id=request.pk, outcome=ReplayOutcome.QUEUED.value)
    return items.count() == request.canary


def _canary(request: ReplayRequest, using: str) -> timedelta | None:
    """Return how long to wait for the first jobs; None: go on. Ends the request when one of them died."""
    if not request.canary:
        return None
    first = _queued_items(request, using)
    jobs = Job.objects.using(using).filter(pk__in=first)
    dead = jobs.filter(state=JobState.DEAD_LETTERED).order_by("pk").first()
    if dead is not None:
        because = f"Its canary, job {dead.pk}, died again: {dead.dead_reason}. The rest was left alone."
        finish(request.pk, ReplayState.STOPPED, using=using, because=because)
        return timedelta(0)
    if len(first) < request.canary:
        return None
    open_ones = jobs.exclude(state__in=[JobState.SUCCEEDED, JobState.CANCELLED]).exists()
    return LOOK_AT_CANARY if open_ones else None
