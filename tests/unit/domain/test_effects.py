"""The effect rules as tables: guarantees, the join of sends, the decision and what an answer means."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_jobs.domain.effects import (
    Action,
    Confirmed,
    Dedupe,
    EffectFacts,
    Guarantees,
    Meaning,
    PastSend,
    Reconciliation,
    Rejected,
    Unknown,
    Verdict,
    after_reconcile,
    blocks_completion,
    decide,
    join,
    may_adopt,
    refuse_ruling_out,
    settled_by_rejection,
)
from django_jobs.domain.retry import RetryPolicy
from django_jobs.domain.states import EffectState, SendOutcome
from django_jobs.exceptions import DefinitionError

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)

KEY = Guarantees(dedupe=Dedupe.KEY, key_lifetime=24 * HOUR)
CACHES = Guarantees(dedupe=Dedupe.KEY, key_lifetime=24 * HOUR, caches_failures=True)
KEY_ASKS = Guarantees(dedupe=Dedupe.KEY, key_lifetime=24 * HOUR, can_reconcile=True, visible_after=MINUTE)
NATURAL = Guarantees(dedupe=Dedupe.NATURAL, can_reconcile=True)
ASKS = Guarantees(dedupe=Dedupe.NONE, can_reconcile=True, visible_after=MINUTE)
NONE = Guarantees(dedupe=Dedupe.NONE)

TRAITS: dict[str, dict[str, Any]] = {
    "key": {"guarantees": KEY},
    "caches": {"guarantees": CACHES},
    "key asks": {"guarantees": KEY_ASKS},
    "natural": {"guarantees": NATURAL},
    "asks": {"guarantees": ASKS},
    "none": {"guarantees": NONE},
    "other's": {"owner_is_me": False, "owner": 41},
    "other's dead": {"owner_is_me": False, "owner_unfinished": False, "owner": 41},
    "settling": {"settled_at": NOW + 2 * MINUTE},
    "old": {"now": NOW + 25 * HOUR},
    "asked": {"asked_since_last_send": True},
    "askable since": {"absence_proves": False},
    "resend": {"on_ambiguous": "resend"},
    "accept": {"on_ambiguous": "accept"},
    "compensating": {"compensation": "open"},
    "compensated": {"compensation": "succeeded"},
    "found": {"resolved": "found"},
    "abandoned": {"abandoned": True},
    "changed": {"digest": "v1:new"},
}


def past(*outcomes: str, epoch: int = 0, **traits: Any) -> tuple[PastSend, ...]:
    """Make earlier sends of the same bytes under one key, an hour ago."""
    return tuple(
        PastSend(
            number=number, started_at=NOW - HOUR, outcome=outcome, **{"epoch": epoch, "digest": "v1:old", **traits}
        )
        for number, outcome in enumerate(outcomes)
    )


def known(traits: str = "key", *outcomes: str, **changes: Any) -> EffectFacts:
    """Make facts of the named traits: settled long ago, own row, same bytes."""
    facts: dict[str, Any] = {
        "guarantees": KEY,
        "now": NOW,
        "call": 10 * SECOND,
        "digest": "v1:old",
        "stored_digest": "v1:old",
        "settled_at": NOW - 30 * MINUTE,
        "sends": past(*outcomes),
    }
    for trait in traits.split(", "):
        facts.update(TRAITS[trait])
    return EffectFacts(**{**facts, **changes})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"dedupe": "often"}, "dedupe is 'often'; give one of 'key', 'natural', 'none'"),
        ({"dedupe": "key"}, "key_lifetime is required for dedupe='key'"),
        ({"dedupe": "none", "key_lifetime": HOUR}, "makes sense for nothing else"),
        ({"dedupe": "key", "key_lifetime": -HOUR}, "give the time that the provider documents"),
        ({"dedupe": "none", "key_alphabet": "hex"}, "give 'ascii' or 'uuid'"),
        ({"dedupe": "none", "settle": -SECOND}, "give 0 or more"),
        ({"dedupe": "none", "visible_after": -SECOND}, "give 0 or more"),
    ],
)
def test_guarantees_refuse_a_promise_that_cannot_be_kept(values: dict[str, Any], words: str) -> None:
    """A promise that contradicts itself is refused where it is declared."""
    with pytest.raises(DefinitionError) as refused:
        Guarantees(**values)
    assert words in str(refused.value)


def test_guarantees_survive_storage() -> None:
    """A stored promise reads back equal, and a name of a newer version does not disturb it."""
    for promise in (KEY_ASKS, NATURAL, NONE):
        stored = json.loads(json.dumps({**promise.as_dict(), "added_later": 1}))
        assert Guarantees.from_dict(stored) == promise
    assert Guarantees(dedupe="natural").dedupe is Dedupe.NATURAL  # type: ignore[arg-type]


def test_outcomes_take_their_main_word_first() -> None:
    """What an operation returns is written with one word and named details."""
    assert Confirmed("ch_1", status=200).provider_ref == "ch_1"
    assert Rejected("declined").permanent
    assert Unknown("timed out", status=504).status == 504


def test_past_send_reads_no_outcome_as_open_and_refuses_other_words() -> None:
    """A send without a recorded outcome is open."""
    assert past(None)[0].outcome == "open"  # type: ignore[arg-type]
    assert past(SendOutcome.UNKNOWN)[0].outcome == "unknown"
    with pytest.raises(ValueError, match="maybe"):
        past("maybe")


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([], EffectState.PLANNED),
        ([None], EffectState.IN_FLIGHT),
        (["unknown", "open"], EffectState.IN_FLIGHT),
        (["unknown", "rejected"], EffectState.AMBIGUOUS),
        (["rejected", "not_applied"], EffectState.REJECTED),
        (["confirmed", "open", "unknown", "rejected"], EffectState.SUCCEEDED),
    ],
)
def test_join_reads_all_sends_together(outcomes: list[str | None], expected: EffectState) -> None:
    """Success needs one confirmation, rejection needs all sends, and the last one decides nothing."""
    assert join(outcomes) is expected
    assert join(reversed(outcomes)) is expected
    assert join(outcomes, resolved=True) is EffectState.SUCCEEDED


def test_join_keeps_an_abandoned_effect_until_it_is_confirmed() -> None:
    """An effect that was given up stays so, unless evidence shows that it happened."""
    assert join(["unknown"], abandoned=True) is EffectState.ABANDONED
    assert join(["unknown", "confirmed"], abandoned=True) is EffectState.SUCCEEDED


@pytest.mark.parametrize(
    ("state", "required", "expected"),
    [
        (EffectState.PLANNED, False, True),
        (EffectState.IN_FLIGHT, False, True),
        (EffectState.AMBIGUOUS, False, True),
        (EffectState.REJECTED, True, True),
        (EffectState.REJECTED, False, False),
        (EffectState.SUCCEEDED, True, False),
        (EffectState.ABANDONED, True, False),
    ],
)
def test_blocks_completion_while_anything_is_open(state: EffectState, required: bool, expected: bool) -> None:
    """A job succeeds only when each effect is known, given up, or rejected and not required."""
    assert blocks_completion(state, required=required) is expected


@pytest.mark.parametrize(
    ("traits", "outcomes", "expected"),
    [
        # taken back: asked before anything else
        ("compensating", ["confirmed"], Action.REUSED),
        ("compensated, other's", ["confirmed"], Action.REUSED),
        ("compensated, changed", ["confirmed"], Action.REUSED),
        # other bytes
        ("changed", ["confirmed"], Action.CHANGED),
        ("changed, natural", ["open"], Action.CHANGED),
        ("changed, other's", ["unknown"], Action.CHANGED),
        ("changed, found", ["not_applied"], Action.CHANGED),
        ("changed", ["rejected", "not_applied"], Action.SEND_NEW_EPOCH),
        ("changed", [], Action.SEND),
        # applied
        ("key", ["unknown", "confirmed", "open"], Action.SKIP),
        ("none, found", ["unknown"], Action.SKIP),
        ("other's", ["confirmed"], Action.ADOPT),
        ("other's dead", ["confirmed"], Action.ADOPT),
        # given up
        ("none, abandoned", ["unknown"], Action.ABANDON),
        ("none, abandoned, other's dead", ["unknown"], Action.REUSED),
        ("none, abandoned, other's", ["unknown"], Action.REUSED),
        # known not applied
        ("none", [], Action.SEND),
        ("none", ["rejected"], Action.SEND),
        ("key", ["rejected"], Action.SEND),
        ("caches", ["rejected"], Action.SEND_NEW_EPOCH),
        ("caches", ["not_applied"], Action.SEND),
        ("key, old", ["not_applied"], Action.SEND_NEW_EPOCH),
        ("none, old", ["not_applied"], Action.SEND),
        ("other's", ["rejected"], Action.SEND),
        ("other's", [], Action.SEND),
        # unclear under another job
        ("none, other's", ["open"], Action.WAIT),
        ("key, other's", ["unknown"], Action.WAIT),
        ("key, other's dead", ["open"], Action.REUSED),
        ("natural, other's dead", ["unknown"], Action.REUSED),
        # unclear and own: the same request is harmless
        ("natural, settling", ["open"], Action.RECONCILE),
        ("natural, settling, asked", ["open"], Action.SEND),
        ("key, settling", ["open"], Action.SEND),
        ("key asks, settling", ["open"], Action.RECONCILE),
        ("key asks, asked", ["unknown"], Action.SEND),
        # unclear and own: only the provider knows
        ("key asks, old", ["open"], Action.RECONCILE),
        ("asks", ["unknown"], Action.RECONCILE),
        ("asks, settling", ["unknown"], Action.WAIT),
        # unclear and own: nobody knows
        ("none", ["unknown"], Action.REVIEW),
        ("key, old", ["open"], Action.REVIEW),
        ("none, resend", ["unknown"], Action.SEND),
        ("none, accept", ["unknown"], Action.ABANDON),
        ("asks, accept", ["unknown"], Action.RECONCILE),
        ("asks, askable since", ["unknown"], Action.RECONCILE),
        ("asks, askable since, settling", ["unknown"], Action.WAIT),
        ("asks, askable since, asked", ["unknown"], Action.REVIEW),
    ],
)
def test_decide_follows_the_table(traits: str, outcomes: list[str], expected: Action) -> None:
    """Each situation has one answer, in words, and only two of the answers let a request out."""
    decision = decide(known(traits, *outcomes))
    assert decision.action is expected, decision.why
    assert decision.why.endswith(".")
    assert decision.may_send is (expected in {Action.SEND, Action.SEND_NEW_EPOCH})


def test_decide_counts_epochs_from_the_newest_key() -> None:
    """A repetition uses the newest key, a new epoch the next one, and the first send epoch 0."""
    sends = (*past("rejected", epoch=0), *past("rejected", epoch=3))
    assert decide(known("key", sends=sends)).epoch == 3
    assert decide(known("caches", sends=sends)).epoch == 4
    assert decide(known("key")).epoch == 0
    assert decide(known("key", sends=past("unknown", epoch=2))).epoch == 2


@pytest.mark.parametrize(("burnt", "expected"), [(True, Action.SEND_NEW_EPOCH), (False, Action.SEND)])
def test_decide_trusts_what_the_rejection_said_about_its_key(burnt: bool, expected: Action) -> None:
    """A rejection that says whether its key is burnt overrides the general promise."""
    for guarantees in (KEY, CACHES):
        facts = known("key", guarantees=guarantees, sends=past("rejected", key_is_burnt=burnt))
        assert decide(facts).action is expected


def test_decide_keeps_the_epoch_after_a_judgement() -> None:
    """A rejection under an older key and a judgement about the current one are no reason for a new key."""
    sends = (*past("rejected", epoch=0), *past("not_applied", epoch=1))
    decision = decide(known("caches", sends=sends))
    assert (decision.action, decision.epoch) == (Action.SEND, 1)


def test_decide_compares_with_the_bytes_of_every_send() -> None:
    """A request is compared with each send that may have been applied, not only with the row."""
    sends = (*past("unknown", digest="v1:first"), *past("rejected", digest="v1:old"))
    assert decide(known("key", sends=sends)).action is Action.CHANGED
    back_to_first = known("key", digest="v1:first", sends=(*past("rejected", digest="v1:first"), *past("rejected")))
    assert decide(back_to_first).action is Action.SEND_NEW_EPOCH
    unrecorded = known("key", sends=past("unknown", digest=""), stored_digest=None)
    assert decide(unrecorded).action is Action.SEND


def test_decide_leaves_room_for_the_call_and_the_clocks_at_the_end_of_a_key() -> None:
    """The same key is used only if the request ends inside its lifetime, whatever the provider's clock says."""
    last = NOW - HOUR + 24 * HOUR - timedelta(minutes=5) - 10 * SECOND
    assert decide(known("key", "open", now=last - SECOND)).action is Action.SEND
    assert decide(known("key", "open", now=last)).action is Action.REVIEW
    assert decide(known("key", "open", now=last, skew=timedelta(0))).action is Action.SEND


def test_decide_does_not_trust_a_new_key_with_an_unclear_old_one() -> None:
    """If a send under an older key is unclear, the current key protects from nothing."""
    sends = (*past("unknown", epoch=0), *past("unknown", epoch=1))
    assert decide(known("key", sends=sends)).action is Action.REVIEW
    assert decide(known("key asks", sends=sends, now=NOW)).action is Action.RECONCILE


@pytest.mark.parametrize(
    ("traits", "changes", "until"),
    [
        ("asks, settling", {}, NOW + 3 * MINUTE),
        ("asks, settling", {"visible_after": HOUR}, NOW + 2 * MINUTE + HOUR),
        ("none, other's", {}, NOW + SECOND),
        ("none, other's, settling", {}, NOW + 2 * MINUTE),
        ("asks", {"settled_at": None, "sends": past("unknown", digest="", epoch=0)}, None),
    ],
)
def test_decide_waits_until_an_answer_can_be_final(
    traits: str, changes: dict[str, Any], until: datetime | None
) -> None:
    """A wait ends when every send has settled and shows, and is never shorter than a second."""
    assert decide(known(traits, "unknown", **changes)).until == until


def test_facts_estimate_the_settling_that_was_not_recorded() -> None:
    """Without a recorded time a send counts as settled after its call and the provider's settling time."""
    facts = known("asks", sends=past("unknown"), settled_at=None)
    assert facts.calm_at == NOW - HOUR + 10 * SECOND + 30 * SECOND
    assert known("asks", "rejected", settled_at=None).calm_at == NOW


def test_decide_names_the_other_job_and_both_digests() -> None:
    """The explanation of a review names what a human must look at."""
    assert "under job 41" in decide(known("other's, compensated", "confirmed")).why
    assert "under another job" in decide(known("other's dead", "open", owner=None)).why
    changed = decide(known("changed", "unknown")).why
    assert "v1:old" in changed
    assert "v1:new" in changed


@pytest.mark.parametrize(
    ("traits", "verdict", "expected", "until"),
    [
        ("asks, settling", Verdict.SUCCEEDED, Meaning.APPLIED, None),
        ("asks", Verdict.NOT_FOUND, Meaning.NOT_APPLIED, None),
        ("asks, settling", Verdict.NOT_FOUND, Meaning.WAIT, NOW + 3 * MINUTE),
        ("key asks, settling", Verdict.NOT_FOUND, Meaning.DECIDE, None),
        ("key asks, old", Verdict.NOT_FOUND, Meaning.NOT_APPLIED, None),
        ("natural, settling", Verdict.NOT_FOUND, Meaning.DECIDE, None),
        ("asks, askable since", Verdict.NOT_FOUND, Meaning.DECIDE, None),
        ("asks, askable since, settling", Verdict.NOT_FOUND, Meaning.WAIT, NOW + 3 * MINUTE),
        ("asks, askable since", Verdict.SUCCEEDED, Meaning.APPLIED, None),
        ("asks", Verdict.FAILED, Meaning.REJECTED, None),
        ("asks, settling", Verdict.FAILED, Meaning.WAIT, NOW + 2 * MINUTE),
        ("key asks, settling", Verdict.FAILED, Meaning.WAIT, NOW + 2 * MINUTE),
        ("caches, settling", Verdict.FAILED, Meaning.REJECTED, None),
        ("asks", Verdict.PENDING, Meaning.WAIT, NOW + 5 * SECOND),
        ("asks", Verdict.UNAVAILABLE, Meaning.WAIT, NOW + 5 * SECOND),
    ],
)
def test_after_reconcile_knows_what_is_final(
    traits: str, verdict: Verdict, expected: Meaning, until: datetime | None
) -> None:
    """Found is always final, failed once no send can arrive, not found only when all sends would show."""
    facts, policy = known(traits, "unknown"), RetryPolicy(base=5 * SECOND)
    answer = after_reconcile(facts, Reconciliation(verdict), policy=policy, random=lambda: 1.0)
    assert (answer.meaning, answer.until) == (expected, until), answer.why
    assert answer.final is (expected in {Meaning.APPLIED, Meaning.REJECTED, Meaning.NOT_APPLIED})


def test_after_reconcile_is_not_final_before_the_answer_can_show_everything() -> None:
    """Settled is not enough: the provider's answers lag behind."""
    facts = known("asks", "unknown", settled_at=NOW - 59 * SECOND)
    assert after_reconcile(facts, Reconciliation(Verdict.NOT_FOUND)).until >= NOW + SECOND  # type: ignore[operator]
    assert after_reconcile(known("asks", "unknown", settled_at=NOW - MINUTE), Reconciliation(Verdict.NOT_FOUND)).final


@pytest.mark.parametrize(
    ("guarantees", "remembered", "calm", "settled"),
    [
        (CACHES, True, NOW, {0, 1}),
        (CACHES, False, NOW, set()),
        (NONE, True, NOW, set()),
        (NATURAL, True, NOW, set()),
        (CACHES, True, NOW - HOUR + 24 * HOUR - 6 * MINUTE, {0, 1}),
        (CACHES, True, NOW - HOUR + 24 * HOUR - 5 * MINUTE, set()),
    ],
)
def test_remembered_rejection_settles_the_unclear_sends_of_its_key(
    guarantees: Guarantees, remembered: bool, calm: datetime, settled: set[int]
) -> None:
    """Only where the provider remembers, only while it does, only under that key, and nothing that is known."""
    mine = past("open", "unknown", "rejected", "not_applied", key="k1")
    sends = (*mine, PastSend(number=9, started_at=NOW, outcome="unknown", key="k2"))
    found = settled_by_rejection(sends, answered=2, remembered=remembered, guarantees=guarantees, calm_at=calm)
    assert found == settled


def test_after_reconcile_asks_less_and_less_often() -> None:
    """Each unanswered question waits longer, and never less than a second."""
    facts, pending, policy = known("asks", "unknown"), Reconciliation(Verdict.PENDING), RetryPolicy(base=5 * SECOND)
    waits = [
        after_reconcile(facts, pending, asked=asked, policy=policy, random=lambda: 1.0).until for asked in (1, 2, 3)
    ]
    assert waits == [NOW + 5 * SECOND, NOW + 10 * SECOND, NOW + 20 * SECOND]
    assert after_reconcile(facts, pending, random=lambda: 0.0).until == NOW + SECOND


def test_may_adopt_only_a_receipt_that_holds() -> None:
    """An adopted receipt must still be a success that nobody takes back."""
    assert may_adopt(state=EffectState.SUCCEEDED, compensation="none")
    assert not may_adopt(state=EffectState.SUCCEEDED, compensation="open")
    assert not may_adopt(state=EffectState.AMBIGUOUS, compensation="none")


@pytest.mark.parametrize(
    ("traits", "outcome", "words"),
    [
        ("none", "confirmed", "there is nothing unclear"),
        ("none", "unknown", "still working on it"),
        ("none, other's dead, settling", "open", "judge after 2026-03-01 12:02:00 UTC"),
        ("none, other's dead", "unknown", ""),
    ],
)
def test_a_human_may_rule_out_only_what_can_not_happen_any_more(traits: str, outcome: str, words: str) -> None:
    """A judgement waits for the owner to end and for every send to settle."""
    reason = refuse_ruling_out(known(traits, outcome))
    assert words in reason
    assert bool(reason) is bool(words)
