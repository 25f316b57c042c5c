"""May this effect be sent, or sent again, and how? The one decision that every send asks first.

An effect's row is shared by all jobs that name the same business act, so the decision looks at every send of the row,
whoever made it. The rules are asked in order and the first that answers decides; their order is part of the safety.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from django_jobs.domain.facts import NOT_APPLIED, SHORTEST_WAIT, EffectFacts, blocks_completion, join
from django_jobs.domain.providers import (
    Confirmed,
    Dedupe,
    Guarantees,
    Outcome,
    PastSend,
    Reconciliation,
    Rejected,
    Unknown,
    Verdict,
)
from django_jobs.domain.reconcile import AfterReconcile, Meaning, after_reconcile, settled_by_rejection
from django_jobs.domain.states import EffectState

__all__ = [
    "Action",
    "AfterReconcile",
    "Confirmed",
    "Decision",
    "Dedupe",
    "EffectFacts",
    "Guarantees",
    "Meaning",
    "Outcome",
    "PastSend",
    "Reconciliation",
    "Rejected",
    "Unknown",
    "Verdict",
    "after_reconcile",
    "blocks_completion",
    "decide",
    "join",
    "may_adopt",
    "refuse_ruling_out",
    "settled_by_rejection",
]


class Action(StrEnum):
    """What may be done next with an effect."""

    SEND = "send"  # under the current key
    SEND_NEW_EPOCH = "send_new_epoch"  # under a new key: the current one is burnt, expired or was used for other bytes
    RECONCILE = "reconcile"  # ask the provider first
    WAIT = "wait"  # end the attempt as a snooze until ``until``
    SKIP = "skip"  # applied by this job; take the stored receipt
    ADOPT = "adopt"  # applied by another job for the same business act; take its receipt
    REVIEW = "review"  # nobody can be asked: a human decides
    REUSED = "reused"  # EffectKeyReusedError: a human looks at both jobs
    CHANGED = "changed"  # EffectChangedError: other bytes while the earlier ones may have been applied
    ABANDON = "abandon"  # on_ambiguous="accept": go on without knowing, recorded and counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What may be done next and, in plain English, why.

    ``epoch`` is the key epoch that a send must use; ``until`` is set for a wait.
    """

    action: Action
    why: str
    epoch: int = 0
    until: datetime | None = None

    @property
    def may_send(self) -> bool:
        """Whether a request may go out now."""
        return self.action in (Action.SEND, Action.SEND_NEW_EPOCH)


def decide(facts: EffectFacts) -> Decision:
    """Return the one thing that may be done next with an effect; the caller holds the row's lock."""
    for rule in _RULES:
        decision = rule(facts)
        if decision is not None:
            return decision
    return _by_choice(facts)


def _compensated(facts: EffectFacts) -> Decision | None:
    """An effect that is being taken back is no receipt and no reason to send again; asked before anything else."""
    if facts.compensation == "none":
        return None
    done = "has been" if facts.compensation == "succeeded" else "is being"
    return Decision(
        action=Action.REUSED, why=f"The effect{_owned(facts)} {done} compensated; a human decides what holds."
    )


def _changed(facts: EffectFacts) -> Decision | None:
    """Other bytes, or another operation, than what was or may have been applied are another act under the same name."""
    if facts.state in (EffectState.PLANNED, EffectState.REJECTED):
        return None
    stored = {send.digest for send in facts.sends if send.digest and send.outcome not in NOT_APPLIED}
    if facts.stored_digest is not None:
        stored.add(facts.stored_digest)
    others = sorted(stored - {facts.digest})
    if facts.operation_changed:
        return Decision(
            action=Action.CHANGED,
            why=(
                f"Under this name and key {facts.stored_operation!r} may have been applied, and this is "
                f"{facts.operation!r}. Give each operation a name or a key of its own."
            ),
        )
    if not others:
        return None
    return Decision(
        action=Action.CHANGED,
        why=f"An earlier request (digest {others[0]}) may have been applied, and this one differs ({facts.digest}).",
    )


def _applied(facts: EffectFacts) -> Decision | None:
    if facts.state is not EffectState.SUCCEEDED:
        return None
    if facts.owner_is_me:
        return Decision(action=Action.SKIP, why="The effect was applied by an earlier attempt of this job.")
    return Decision(action=Action.ADOPT, why=f"The effect was applied for the same business act{_owned(facts)}.")


def _abandoned(facts: EffectFacts) -> Decision | None:
    if facts.state is not EffectState.ABANDONED or not facts.owner_is_me:
        return None
    return Decision(action=Action.ABANDON, why="The outcome was accepted as unknown before and is not asked again.")


def _known_not_applied(facts: EffectFacts) -> Decision | None:
    """Nothing sent, or nothing applied for sure: whoever asks may send, and owns the row from then on."""
    if facts.state is EffectState.PLANNED:
        return Decision(action=Action.SEND, why="Nothing has been sent yet.", epoch=facts.epoch)
    if facts.state is not EffectState.REJECTED:
        return None
    reason = _reason_for_new_key(facts)
    if reason:
        return Decision(
            action=Action.SEND_NEW_EPOCH,
            why=f"Every earlier send is known not to have been applied, and {reason}.",
            epoch=facts.epoch + 1,
        )
    return Decision(action=Action.SEND, why="Every earlier send is known not to have been applied.", epoch=facts.epoch)


def _reason_for_new_key(facts: EffectFacts) -> str:
    """A new key is safe only here, where nothing is unclear; a judgement alone is no reason for one."""
    if facts.bytes_changed or facts.operation_changed:
        return "the request has changed since"
    if facts.key_burnt:
        return "the provider would repeat its rejection for the current key"
    if facts.key_expired:
        return "the provider may have forgotten the current key"
    return ""


def _foreign(facts: EffectFacts) -> Decision | None:
    """An unclear effect of another job: its owner will find out, unless it has ended without knowing."""
    if facts.owner_is_me:
        return None
    if facts.owner_unfinished and facts.state is not EffectState.ABANDONED:
        return _wait(facts, f"The outcome is not known yet{_owned(facts)}, which is still working on it.")
    return Decision(
        action=Action.REUSED, why=f"The effect is {facts.state}{_owned(facts)}, which will not find out any more."
    )


def _protected(facts: EffectFacts) -> Decision | None:
    """By nature, or inside the life of its key, the same request does no harm: after one question it is sent again."""
    if not facts.repeatable:
        return None
    if facts.guarantees.can_reconcile and not facts.asked_since_last_send:
        return Decision(action=Action.RECONCILE, why="An earlier send is unclear and the provider can be asked.")
    natural = facts.guarantees.dedupe is Dedupe.NATURAL
    why = "repeating it changes nothing" if natural else "the same key and bytes are applied at most once"
    return Decision(action=Action.SEND, why=f"An earlier send is unclear; {why}.", epoch=facts.epoch)


def _askable(facts: EffectFacts) -> Decision | None:
    if not facts.guarantees.can_reconcile:
        return None
    if facts.asked_since_last_send and not facts.absence_proves:
        return None  # it was asked, did not know the operation, and would have had no way to know it
    if facts.now < facts.visible_at:
        return _wait(facts, "An earlier send may still be applied, so the provider cannot answer for good yet.")
    return Decision(action=Action.RECONCILE, why="An earlier send is unclear and the provider can be asked.")


def _by_choice(facts: EffectFacts) -> Decision:
    """Nobody can be asked and a repetition may be a second effect: the author of the handler has chosen."""
    if facts.on_ambiguous == "resend":
        return Decision(
            action=Action.SEND, why="An earlier send is unclear; duplicates are accepted.", epoch=facts.epoch
        )
    if facts.on_ambiguous == "accept":
        return Decision(action=Action.ABANDON, why="An earlier send is unclear; a lost effect is accepted.")
    return Decision(action=Action.REVIEW, why="An earlier send may have been applied and the provider cannot be asked.")


_RULES: tuple[Callable[[EffectFacts], Decision | None], ...] = (
    _compensated,
    _changed,
    _applied,
    _abandoned,
    _known_not_applied,
    _foreign,
    _protected,
    _askable,
)


def _wait(facts: EffectFacts, why: str) -> Decision:
    return Decision(action=Action.WAIT, why=why, until=max(facts.visible_at, facts.now + SHORTEST_WAIT))


def _owned(facts: EffectFacts) -> str:
    if facts.owner_is_me:
        return ""
    return f" under job {facts.owner}" if facts.owner is not None else " under another job"


def may_adopt(*, state: EffectState, compensation: str) -> bool:
    """Say whether an adopted receipt still holds; the adopter's completion asks again under the row's lock."""
    return state is EffectState.SUCCEEDED and compensation == "none"


def refuse_ruling_out(facts: EffectFacts) -> str:
    """Return why a human may not judge the effect "not applied" now, in plain English; empty if they may."""
    if facts.state not in (EffectState.IN_FLIGHT, EffectState.AMBIGUOUS):
        return f"The effect is {facts.state}; there is nothing unclear to judge."
    if facts.owner_unfinished:
        return "The job that owns the effect is still working on it; wait until it is dead-lettered."
    if facts.now < facts.visible_at:
        return f"A send may still be applied; judge after {facts.visible_at:%Y-%m-%d %H:%M:%S %Z}."
    return ""
