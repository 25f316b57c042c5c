"""The replay of one dead letter: its plan, what has to be acknowledged, and the new generation."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from django_jobs import faults
from django_jobs.define import registry
from django_jobs.domain.states import AttemptOutcome, JobState
from django_jobs.exceptions import ActionChangedError
from django_jobs.models import Job, OperatorAction
from django_jobs.operate.action import Acknowledgement, Operator, Plan
from django_jobs.operate.composition import replay_lines
from django_jobs.operate.history import EffectHistory, JobHistory, history_of, plain
from django_jobs.operate.job_decision import (
    JobDecision,
    basic_facts,
    checked_extra,
    checked_start,
    checked_useful,
    live_code,
    state_in_words,
)
from django_jobs.operate.replay_plan import EffectPlan, OnReplay, ReplayPlan, plan_replay
from django_jobs.operate.wording import LOSS, counted, instant
from django_jobs.store.decisions import replay


class Replay(JobDecision):
    """Run a dead letter again, as the same job: its id, key, attempt numbers, steps and effects stay.

    Args:
        job_id: The job.
        using: The database alias.
        extra_attempts: What is added to the limits of unknown errors in the new generation, 0 to 100.
        run_after: When it may start: an aware datetime, or a span from now; None: at once.
        useful_for: From its start, how long its result is worth something; a job that has expired needs one.

    Raises:
        OperatorError: A value is none of these.
    """

    name = "replay"
    permission = "replay_job"

    def __init__(
        self,
        job_id: uuid.UUID,
        *,
        using: str,
        extra_attempts: int = 0,
        run_after: datetime | timedelta | None = None,
        useful_for: timedelta | None = None,
    ) -> None:
        super().__init__(job_id, using=using)
        self.extra_attempts = checked_extra(extra_attempts)
        self.run_after = checked_start(run_after)
        self.useful_for = checked_useful(useful_for)

    def lock(self) -> None:
        """Lock the job and its effects."""
        super().lock()
        faults.reached("replay.after_lock", using=self.using)

    def more_permissions(self) -> tuple[str, ...]:
        """Return the permission that the job type names for its replays."""
        return type_permissions({self.job().job_type})

    def plan(self) -> Plan:
        """Say what a replay would do now.

        Raises:
            JobNotFoundError: There is no such job.
        """
        history = history_of(self.job(), using=self.using)
        found = plan_replay(history)
        code = live_code(history.job.job_type, using=self.using)
        job, refused = history.job, self.refused(history, found)
        return Plan(
            action=self.name,
            title=f"Replay job {job.pk} ({job.job_type})",
            refused=self.taken_back() or refused,
            facts={
                **replay_facts(history, found),
                "code": {"failed": job.code_version, "live": code},
                "extra_attempts": self.extra_attempts,
                "run_after": _time(self.run_after),
                "useful_for": _time(self.useful_for),
            },
            lines=tuple(self._lines(history, found, code)),
            acknowledge=tuple(_acknowledge(history, found, same=_same_code(job.code_version, code))),
        )

    def refused(self, history: JobHistory, found: ReplayPlan) -> str:
        """Say why the job cannot be replayed now; empty: it can, as far as its own rows tell."""
        refused = refused_replay(history, found, run_after=self.run_after, useful_for=self.useful_for)
        before = "" if history.job.state == JobState.DEAD_LETTERED else self._before(history.job)
        return f"{refused} {before}" if refused and before else refused

    def _before(self, job: Job) -> str:
        """Say who began the present generation: whoever lost the answer to a replay asks for it a second time."""
        rows = OperatorAction.objects.using(self.using).filter(job_id=job.pk, action=self.name)
        last = rows.filter(from_generation=job.generation - 1).order_by("-id").first()
        return f"It was already replayed by {last.actor} at {instant(last.created_at)}." if last else ""

    def _lines(self, history: JobHistory, found: ReplayPlan, code: list[str]) -> Iterator[str]:
        job = history.job
        if job.state == JobState.DEAD_LETTERED:
            yield f"It is {state_in_words(job)}."
        for effect in found.effects:
            yield f"Effect {effect.name} ({effect.business_key}) at {effect.provider}: {effect.label}. {effect.why}"
        if not found.effects:
            yield "No side effect is recorded; calls that the handler makes outside of effects are unknown here."
        yield found.rows
        lost = sum(attempt.outcome == AttemptOutcome.LOST for attempt in history.attempts)
        if lost:
            yield f"{counted(lost, 'attempt')} ended unseen: {LOSS}."
        if _same_code(job.code_version, code):
            yield f"No live worker runs other code than the attempt that failed ({job.code_version})."
        if history.key is not None:
            yield f"It keeps its idempotency key {history.key.key}."
        if self.extra_attempts:
            yield f"It may fail {counted(self.extra_attempts, 'time')} more than its policy says."
        yield from replay_lines(history.composition)
        start = "at once" if self.run_after is None else f"not before {_in_words(self.run_after)}"
        yield f"It becomes generation {job.generation + 1} with new counters; attempt numbers go on; it starts {start}."

    def act(self, operator: Operator, action_id: uuid.UUID) -> tuple[str, Mapping[str, Any]]:  # noqa: ARG002
        """Begin the new generation.

        Raises:
            ActionChangedError: The row is not what the plan saw.
        """
        at = self.run_after
        done = replay(
            self.job_id,
            revision=self.job().revision,
            using=self.using,
            extra_attempts=self.extra_attempts,
            run_after=at if isinstance(at, datetime) else None,
            delay=at if isinstance(at, timedelta) else None,
            useful_for=self.useful_for,
        )
        if done is None:
            msg = "The job changed while it was decided about; nothing was done."
            raise ActionChangedError(msg, plan=self.plan())
        transaction.on_commit(lambda: faults.reached("replay.after_commit", using=self.using), using=self.using)
        when = f", due at {instant(done.available_at)}" if done.state == JobState.SCHEDULED else ""
        return (
            f"Job {self.job_id} is {done.state}{when}, generation {done.generation}.",
            {"generation": done.generation, "state": done.state.value, "available_at": plain(done.available_at)},
        )


def type_permissions(job_types: set[str]) -> tuple[str, ...]:
    """Return the permissions that these job types name for their replays."""
    found = {definition.replay_permission for name in job_types if (definition := registry.find(name)) is not None}
    return tuple(sorted(found - {""}))


def refused_replay(
    history: JobHistory,
    found: ReplayPlan,
    *,
    run_after: datetime | timedelta | None = None,
    useful_for: timedelta | None = None,
) -> str:
    """Say why a job cannot be replayed in this way; empty: its own rows do not stand against it."""
    job, payload = history.job, history.payload
    if found.refused and not (useful_for is not None and found.only_expired):
        return found.refused
    if job.content_removed_at is not None or payload is None:
        return f"Its arguments are gone ({history.content_removed or 'the row is missing'}); enqueue a new job instead."
    if payload.key and history.key is None:
        return f"Another job holds its idempotency key {payload.key} by now; a replay would be a second job under it."
    if useful_for is None and job.useful_until is not None and run_after is not None:
        start = run_after if isinstance(run_after, datetime) else history.read_at + run_after
        if start >= job.useful_until:
            return f"It would start too late: it is useful until {instant(job.useful_until)} only. Give a new time."
    undecided = [effect for effect in found.effects if effect.on_replay is OnReplay.NEEDS_DECISION]
    if undecided:
        named = ", ".join(f"{effect.name} ({effect.business_key})" for effect in undecided[:5])
        return f"A human decides first what became of {named}: {undecided[0].why} Resolve it, then replay."
    return ""


def replay_facts(history: JobHistory, found: ReplayPlan) -> dict[str, Any]:
    """Return all that a yes to a replay depends on, beside what the operator adds; it holds no payload."""
    job = history.job
    both = zip((*history.effects, *history.adopted), found.effects, strict=True)
    return {
        **basic_facts(job),
        "dead_reason": job.dead_reason,
        "dead_at": plain(job.dead_at),
        "useful_until": plain(job.useful_until),
        "rows": found.rows,
        "rows_safe": found.rows_safe,
        "steps": len(history.steps),
        "effects": [_effect_facts(item, plan) for item, plan in both],
    }


def _effect_facts(item: EffectHistory, plan: EffectPlan) -> dict[str, Any]:
    effect, last = item.effect, item.sends[-1] if item.sends else None
    return {
        "id": str(effect.pk),
        "name": effect.name,
        "state": effect.state,
        "revision": effect.revision,
        "epoch": effect.epoch,
        "sends": [send.outcome or "open" for send in item.sends],
        "settled_at": plain(last.settled_at) if last else None,
        "asked": len(item.reconciliations),
        "on_replay": plan.on_replay.value,
        # A time to ask at moves with the clock in its last second; the end of a key's life does not.
        "until": plain(plan.until) if plan.on_replay is OnReplay.SAME_KEY else None,
    }


def _acknowledge(history: JobHistory, found: ReplayPlan, *, same: bool) -> Iterator[Acknowledgement]:
    if history.job.state != JobState.DEAD_LETTERED:
        return
    yield Acknowledgement(name="state", label=f"The job is {state_in_words(history.job)}.")
    for effect in found.effects:
        if effect.on_replay is OnReplay.MAY_REPEAT:
            yield Acknowledgement(
                name=f"effect-{effect.effect_id}",
                label=f"{effect.name} ({effect.business_key}) at {effect.provider} may happen a second time.",
            )
    if not found.rows_safe:
        yield Acknowledgement(name="rows", label=found.rows)
    if same:
        yield Acknowledgement(
            name="same_code",
            label=f"No live worker runs other code than the attempt that failed ({history.job.code_version}).",
            reason_code="code_fixed",
        )


def _same_code(failed: str, live: list[str]) -> bool:
    return bool(failed) and set(live) <= {failed}


def _time(value: datetime | timedelta | None) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else plain(value)


def _in_words(value: datetime | timedelta) -> str:
    return instant(value) if isinstance(value, datetime) else f"{value} from now"
