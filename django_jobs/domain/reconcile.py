"""What it means when a provider was asked whether an operation happened."""

from __future__ import annotations

import random as _random
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django_jobs.domain.facts import SHORTEST_WAIT, EffectFacts
from django_jobs.domain.providers import Reconciliation, Verdict
from django_jobs.domain.retry import Random, RetryPolicy, backoff


class Meaning(StrEnum):
    """What a provider's answer means for the effect."""

    APPLIED = "applied"  # the effect succeeded
    REJECTED = "rejected"  # its unclear sends were rejected by the provider
    NOT_APPLIED = "not_applied"  # its unclear sends are known not to have been applied
    WAIT = "wait"  # nothing is final yet; ask again at ``until``
    DECIDE = "decide"  # nothing is final, but the key protects: ask decide() again


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

    "Not found" is final only when no send can still be applied and the answer is sure to show all of them; "failed"
    only when no send can still be applied.
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
    if facts.now >= facts.visible_at:
        return AfterReconcile(
            meaning=Meaning.NOT_APPLIED,
            why="The provider does not know the operation, and no send can arrive any more.",
        )
    if facts.key_protects:
        return AfterReconcile(
            meaning=Meaning.DECIDE,
            why="The provider does not know the operation yet, and its key protects a repetition.",
        )
    until = max(facts.visible_at, facts.now + pause)
    return _later(until, "The provider does not know the operation, but a send may still arrive.")


def _failed(facts: EffectFacts, pause: timedelta) -> AfterReconcile:
    same_failure = facts.key_protects and facts.guarantees.caches_failures
    if facts.now >= facts.calm_at or same_failure:
        return AfterReconcile(meaning=Meaning.REJECTED, why="The provider says that the operation failed for good.")
    until = max(facts.calm_at, facts.now + pause)
    return _later(until, "The provider says that the operation failed, but another send may still arrive.")


def _later(until: datetime, why: str) -> AfterReconcile:
    return AfterReconcile(meaning=Meaning.WAIT, why=why, until=until)
