"""What a replay would do to each side effect, asked from the same rules that decide about every send.

A plan changes nothing and holds for the moment at which it was made: keys run out, and a late answer may arrive. It
takes for granted that the handler asks for the same requests again.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal, cast

from django_jobs.conf import get_settings
from django_jobs.define import registry
from django_jobs.domain.effects import Action, Decision, decide
from django_jobs.domain.facts import SKEW, UNCLEAR, EffectFacts
from django_jobs.domain.providers import OPEN, Dedupe
from django_jobs.domain.states import EffectState, JobState, SendOutcome
from django_jobs.operate.history import EffectHistory, JobHistory
from django_jobs.operate.wording import instant
from django_jobs.store.effect_rows import past, promised


class OnReplay(StrEnum):
    """What a replay would do to an effect, from harmless to undecidable."""

    SKIP = "skip"  # applied or given up: nothing is sent
    SEND = "send"  # known not to have been applied: it is sent
    SAME_KEY = "same_key"  # sent again in a way that the provider applies once
    RECONCILE = "reconcile"  # the provider is asked first
    MAY_REPEAT = "may_happen_again"  # the handler's author accepts a second one
    NEEDS_DECISION = "needs_decision"  # a human decides first


_ORDER = tuple(OnReplay)
LABELS: dict[OnReplay, str] = {
    OnReplay.SKIP: "skip",
    OnReplay.SEND: "send",
    OnReplay.SAME_KEY: "same key",
    OnReplay.RECONCILE: "reconcile first",
    OnReplay.MAY_REPEAT: "may happen again",
    OnReplay.NEEDS_DECISION: "needs your decision",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectPlan:
    """What a replay would do to one effect, and why; ``until`` says how long a protecting key holds, or when to ask."""

    effect_id: uuid.UUID
    name: str
    provider: str
    business_key: str
    on_replay: OnReplay
    why: str
    until: datetime | None = None

    @property
    def label(self) -> str:
        """The class in words, with its time if it has one."""
        text = LABELS[self.on_replay]
        if self.until is None:
            return text
        return (
            f"{text} until {instant(self.until)}"
            if self.on_replay is OnReplay.SAME_KEY
            else (f"{text}, not before {instant(self.until)}")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """A replay before it is asked for.

    ``refused`` says why this job cannot be replayed now (empty: it can). ``rows`` says what becomes of the handler's
    own database rows. ``safe`` is true when no effect can happen twice and no human has to decide first.
    """

    refused: str
    effects: tuple[EffectPlan, ...]
    rows: str
    rows_safe: bool
    only_expired: bool = False  # a new time of usefulness would lift the refusal

    @property
    def worst(self) -> OnReplay | None:
        """The gravest class among the effects, None without effects."""
        return max((plan.on_replay for plan in self.effects), key=_ORDER.index, default=None)

    @property
    def safe(self) -> bool:
        """Whether the record shows that nothing can happen twice."""
        return self.rows_safe and self.worst not in (OnReplay.MAY_REPEAT, OnReplay.NEEDS_DECISION)


def plan_replay(history: JobHistory) -> ReplayPlan:
    """Say what a replay of this job would do now; changes nothing."""
    rows, rows_safe = _rows(history)
    refused, only_expired = _refused(history)
    return ReplayPlan(
        refused=refused,
        only_expired=only_expired,
        effects=tuple(plan_effect(item, history) for item in (*history.effects, *history.adopted)),
        rows=rows,
        rows_safe=rows_safe,
    )


def _refused(history: JobHistory) -> tuple[str, bool]:
    job = history.job
    if job.state != JobState.DEAD_LETTERED:
        return f"Only a dead letter can be replayed; this job is {job.state}.", False
    if job.resolution is not None:
        return f"The dead letter was {job.resolution}; that decision stands.", False
    if any(item.compensation != "none" for item in history.effects):
        return "An effect of this job is being, or has been, taken back; the job is not replayed after that.", False
    if job.useful_until is not None and job.useful_until <= history.read_at:
        return f"It was useful until {instant(job.useful_until)} only; a replay must give a new time.", True
    return "", False


def _rows(history: JobHistory) -> tuple[str, bool]:
    definition = registry.find(history.job.job_type)
    if definition is None:
        return (
            f"This code does not know job type {history.job.job_type!r}, so nothing can be said about its rows.",
            False,
        )
    if definition.atomic:
        return (
            "The handler's database rows commit together with the success (transactional): an attempt that did not "
            "succeed left none."
        ), True
    if definition.takes_context:
        return (
            "Rows written inside complete() or step() commit once; rows that the handler wrote outside of them may be "
            "written again."
        ), True
    return "The handler is declared with atomic=False: rows that it wrote may be written again.", False


def plan_effect(item: EffectHistory, history: JobHistory) -> EffectPlan:
    """Say what the next attempt of the job would do to one effect."""
    facts = facts_of(item, job_id=history.job.pk, now=history.read_at)
    decision = decide(facts)
    on_replay, until = _classified(decision, facts)
    effect = item.effect
    return EffectPlan(
        effect_id=effect.pk,
        name=effect.name,
        provider=effect.provider,
        business_key=effect.business_key,
        on_replay=on_replay,
        why=decision.why,
        until=until,
    )


def _classified(decision: Decision, facts: EffectFacts) -> tuple[OnReplay, datetime | None]:
    match decision.action:
        case Action.SKIP | Action.ADOPT | Action.ABANDON:
            return OnReplay.SKIP, None
        case Action.RECONCILE | Action.WAIT:
            return OnReplay.RECONCILE, decision.until
        case Action.SEND | Action.SEND_NEW_EPOCH:
            return _of_a_send(facts)
        case _:
            return OnReplay.NEEDS_DECISION, None


def _of_a_send(facts: EffectFacts) -> tuple[OnReplay, datetime | None]:
    if not facts.unclear:
        return OnReplay.SEND, None
    if facts.guarantees.dedupe is Dedupe.NATURAL:
        return OnReplay.SAME_KEY, None
    if facts.key_protects and facts.guarantees.key_lifetime is not None:
        first = min(send.started_at for send in facts.sends if send.epoch == facts.epoch)
        return OnReplay.SAME_KEY, first + facts.guarantees.key_lifetime - SKEW - facts.call
    return OnReplay.MAY_REPEAT, None


def facts_of(item: EffectHistory, *, job_id: uuid.UUID, now: datetime) -> EffectFacts:
    """Gather from the rows what :func:`django_jobs.domain.effects.decide` looks at, without a lock."""
    effect, sends = item.effect, item.sends
    unclear = [send for send in sends if (send.outcome or OPEN) in UNCLEAR]
    mine = effect.job_id == job_id
    confirmed = any(send.outcome == SendOutcome.CONFIRMED for send in sends)
    return EffectFacts(
        guarantees=promised(effect),
        now=now,
        call=sends[-1].deadline_at - sends[-1].started_at if sends else get_settings().max_call,
        digest=effect.request_digest,
        sends=tuple(past(send) for send in sends),
        stored_digest=effect.request_digest or None if sends else None,
        settled_at=max((send.settled_at for send in unclear), default=None),
        resolved="found" if effect.state == EffectState.SUCCEEDED and not confirmed else "",
        abandoned=effect.state == EffectState.ABANDONED,
        owner_is_me=mine,
        owner_unfinished=mine,  # another job's effect that did not succeed is for a human
        owner=effect.job_id,
        compensation=item.compensation,
        asked_since_last_send=_asked_since(item),
        on_ambiguous=cast('Literal["review", "resend", "accept"]', effect.on_ambiguous),
    )


def _asked_since(item: EffectHistory) -> bool:
    if not item.sends or not item.reconciliations:
        return False
    last, newest = item.reconciliations[-1], item.sends[-1]
    return (last.created_at, last.pk) > (newest.started_at, newest.pk)
