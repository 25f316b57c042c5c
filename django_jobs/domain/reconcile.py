"""What it means when a provider was asked whether an operation happened."""

from __future__ import annotations

import random as _random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django_jobs.domain.facts import SHORTEST_WAIT, SKEW, UNCLEAR, EffectFacts
from django_jobs.domain.providers import Dedupe, Guarantees, PastSend, Reconciliation, Verdict
from django_jobs.domain.retry import Random, RetryPolicy, backoff


class Meaning(StrEnum):
    """What a provider's answer means for the effect."""

    APPLIED = "applied"  # the effect succeeded
    REJECTED = "rejected"  # its unclear sends were rejected by the provider
    NOT_APPLIED = "not_applied"  # its unclear sends are known not to have been applied
    WAIT = "wait"  # nothing is final yet; ask again at ``until``
    DECIDE = "decide"  # nothing is final, but asking more teaches nothing: ask decide() again


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterReconcile:
    """What a provider's answer means and, in plain English, why; ``until`` is set for a wait."""

    meaning: Meaning
    why: str
    until: datetime | None = None

    @property
    def final(self) -> bool:
        """Whether the answer settles the effect."""
        return self.meaning in (Meaning.APPLIED, Meaning.REJECTED, Meaning.NOT_APPLIED)


def after_reconcile(
    facts: EffectFacts,
    found: Reconciliation,
    *,
    asked: int = 1,
    policy: RetryPolicy | None = None,
    random: Random = _random.random,
) -> AfterReconcile:
    """Return what the provider's answer means; ``facts.now`` is when it was asked, ``asked`` how often so far.

    "Not found" is final only when no send can still be applied and the answer is sure to show all of them (not for a
    send that was made before the operation could be asked for); "failed" only when no send can still be applied.
    """
    if found.verdict is Verdict.SUCCEEDED:
        return AfterReconcile(
            meaning=Meaning.APPLIED, why="The provider found the operation and says that it succeeded."
        )
    pause = max(backoff(policy or RetryPolicy(), asked, random=random), SHORTEST_WAIT)
    if found.verdict is Verdict.NOT_FOUND:
        return _not_found(facts, pause)
    if found.verdict is Verdict.FAILED:
        return _failed(facts, pause)
    word = "still works on the operation" if found.verdict is Verdict.PENDING else "could not be asked"
    return _later(facts.now + pause, f"The provider {word}.")


def _not_found(facts: EffectFacts, pause: timedelta) -> AfterReconcile:
    if facts.now >= facts.visible_at and facts.absence_proves:
        return AfterReconcile(
            meaning=Meaning.NOT_APPLIED,
            why="The provider does not know the operation, and no send can arrive any more.",
        )
    if facts.repeatable:
        return AfterReconcile(
            meaning=Meaning.DECIDE,
            why="The provider does not know the operation yet, and a repetition does no harm.",
        )
    if facts.now >= facts.visible_at:
        return AfterReconcile(
            meaning=Meaning.DECIDE,
            why="The provider does not know the operation, but it was sent before it could be asked for.",
        )
    until = max(facts.visible_at, facts.now + pause)
    return _later(until, "The provider does not know the operation, but a send may still arrive.")


def _failed(facts: EffectFacts, pause: timedelta) -> AfterReconcile:
    same_failure = facts.key_protects and facts.guarantees.caches_failures
    if facts.now >= facts.calm_at or same_failure:
        return AfterReconcile(meaning=Meaning.REJECTED, why="The provider says that the operation failed for good.")
    until = max(facts.calm_at, facts.now + pause)
    return _later(until, "The provider says that the operation failed, but another send may still arrive.")


def settled_by_rejection(
    sends: Sequence[PastSend], *, answered: int, remembered: bool, guarantees: Guarantees, calm_at: datetime
) -> frozenset[int]:
    """Return the numbers of the unclear sends that a provider's rejection of the send ``answered`` proves not applied.

    A provider that remembers a rejection under its key (``remembered``) answers each request with that key alike, so
    none was applied and none will be. That holds while it remembers the key: up to ``calm_at``, when the answer is
    recorded and no request can arrive any more, the key must be inside its lifetime.
    """
    key = next(send.key for send in sends if send.number == answered)
    if not remembered or guarantees.dedupe is not Dedupe.KEY or guarantees.key_lifetime is None:
        return frozenset()
    first = min(send.started_at for send in sends if send.key == key)
    if calm_at + SKEW >= first + guarantees.key_lifetime:
        return frozenset()
    return frozenset(send.number for send in sends if send.key == key and send.outcome in UNCLEAR)


def _later(until: datetime, why: str) -> AfterReconcile:
    return AfterReconcile(meaning=Meaning.WAIT, why=why, until=until)
