"""What a human may say about an effect that the program cannot find out about, and when."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from django_jobs.domain.effects import refuse_ruling_out
from django_jobs.domain.facts import EffectFacts
from django_jobs.domain.states import EffectState, SendOutcome


class Judgement(StrEnum):
    """What a human found out about an effect."""

    APPLIED = "applied"  # it happened; it is never sent again
    NOT_APPLIED = "not_applied"  # it did not and cannot happen any more; the next attempt sends it
    ABANDON = "abandon"  # nobody will find out; the job may go on as if it did not matter


def refuse_judgement(judgement: Judgement, facts: EffectFacts, *, call_until: datetime | None) -> str:
    """Return why a human may not judge so now, in plain English; empty if they may.

    Only "applied" may be said while the owner still works, and of an effect that was inferred, by anybody, not to have
    been applied: knowing that it happened only ever prevents a second one.

    Args:
        judgement: What the human says.
        facts: The effect, with what is true of its owner.
        call_until: When the last call that still goes on ends; None: none goes on.
    """
    if judgement is not Judgement.APPLIED:
        return refuse_ruling_out(facts)
    if facts.state is EffectState.SUCCEEDED:
        return "The effect is known to have been applied already."
    if facts.state is EffectState.PLANNED:
        return "Nothing was sent for this effect, so it cannot have been applied through it."
    inferred = any(send.outcome == SendOutcome.NOT_APPLIED for send in facts.sends)
    if facts.state is EffectState.REJECTED and not inferred:
        return "The provider itself rejected every request of this effect; that stands."
    if call_until is not None and facts.now < call_until:
        return f"A request is being made now; wait for its answer, until {call_until:%Y-%m-%d %H:%M:%S %Z}."
    return ""
