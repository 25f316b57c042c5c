"""Saying by hand whether an effect was applied: what is accepted, when, and what follows."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from django_jobs.domain.effects import Confirmed
from django_jobs.exceptions import ActionChangedError, ActionRefusedError, OperatorError
from django_jobs.models import Job, OperatorAction, Reconciliation, Send, SideEffect
from django_jobs.operate.action import Done
from django_jobs.operate.explain import explain
from django_jobs.operate.history import history_of
from django_jobs.operate.replay_plan import OnReplay, plan_replay
from django_jobs.operate.resolve import Resolve
from django_jobs.operate.verify import verify
from django_jobs.store.effects import record
from tests.databases import Server
from tests.factories_decisions import Person, decided, operator
from tests.integration.operate.stories import EffectStory, Story, later
from tests.scenes import Told, held

pytestmark = pytest.mark.django_db

EVIDENCE = "looked at the provider's dashboard, by amount and date"


def dead(**promise: Any) -> EffectStory:
    """Return an unclear effect of a dead letter whose provider cannot be asked."""
    story = Story().claim()
    told = story.effect(**{"dedupe": "none", **promise}).send().answer("unknown").review()
    story.fail(error_class="permanent", dead="effect_review")
    return told


def resolve(told: EffectStory, verdict: str, **changes: Any) -> Done:
    """Resolve an effect as somebody who has just looked does."""
    given = {"provider_ref": "ch_7"} if verdict == "applied" else {"evidence": EVIDENCE}
    return decided(Resolve(told.row.pk, verdict, **given, using="default"), **changes)


def replayed(told: EffectStory) -> OnReplay:
    """Return what a replay would do to the effect now."""
    job = Job.objects.get(pk=told.row.job_id)
    return plan_replay(history_of(job, using="default")).effects[0].on_replay


def healthy() -> dict[str, tuple[str, ...]]:
    """Return what verify finds, by name."""
    return {item.invariant.name: item.ids for item in verify(using="default").violated}


@pytest.mark.parametrize(
    ("verdict", "state", "follows"),
    [
        ("applied", "succeeded", OnReplay.SKIP),
        ("not_applied", "rejected", OnReplay.SEND),
        ("abandon", "abandoned", OnReplay.SKIP),
    ],
)
def test_judgement_settles_the_effect(database: Server, verdict: str, state: str, follows: OnReplay) -> None:
    """The effect is settled, the review is over, evidence and audit are kept, and a replay means something else now."""
    told = dead()
    assert replayed(told) is OnReplay.NEEDS_DECISION

    resolve(told, verdict)

    told.row.refresh_from_db()
    assert (told.row.state, told.row.needs_review) == (state, False)
    assert told.row.resolved_by == ("" if state == "rejected" else "operator")
    assert told.row.provider_ref == ("ch_7" if verdict == "applied" else "")
    row = Reconciliation.objects.get()
    assert (row.actor, row.attempt_id) == ("ada", None)
    assert json.loads(row.evidence) == {"text": "" if verdict == "applied" else EVIDENCE}
    action = OperatorAction.objects.get()
    assert (action.action, action.effect_id, action.job_id) == ("resolve", told.row.pk, told.row.job_id)
    assert replayed(told) is follows
    assert healthy() == {}


def test_explain_says_who_found_out(database: Server) -> None:
    """The story of the job names the human, and that a replay skips the effect."""
    told = dead()
    resolve(told, "applied")

    found = explain(Job.objects.get(pk=told.row.job_id), using="default")
    text = "\n".join(line for section in found.sections for line in section.lines)
    assert "by an operator (provider reference ch_7)" in text
    assert "Asked by ada at" in text
    assert "YES: a replay cannot repeat anything that is recorded." in text


@pytest.mark.parametrize("verdict", ["not_applied", "abandon"])
def test_ruling_out_waits_for_the_owner(database: Server, verdict: str) -> None:
    """While the job that owns the effect may still find out or send, nobody rules it out."""
    told = Story().claim().effect(dedupe="none").send().answer("unknown")

    with pytest.raises(ActionRefusedError, match="still working on it"):
        resolve(told, verdict)

    assert not Reconciliation.objects.exists()
    assert not OperatorAction.objects.exists()


@pytest.mark.parametrize("verdict", ["not_applied", "abandon"])
def test_ruling_out_waits_until_every_send_is_visible(database: Server, verdict: str) -> None:
    """Before the last send is settled and visible it is refused, with the time; after it it is accepted."""
    told = dead(visible_after_seconds=7200.0)
    until = told.sends[0].settled_at + timedelta(hours=2)

    with pytest.raises(ActionRefusedError, match=f"{until:%Y-%m-%d %H:%M:%S}"):
        resolve(told, verdict)
    with later(hours=3):
        resolve(told, verdict)

    told.row.refresh_from_db()
    assert told.row.state in {"rejected", "abandoned"}


def test_applied_may_be_said_while_the_owner_waits(database: Server) -> None:
    """Knowing that it happened only prevents a second one: it needs no finished owner."""
    story = Story().claim()
    told = story.effect(can_reconcile=True).send().answer("unknown")
    story.snooze(for_evidence=True)

    resolve(told, "applied")

    told.row.refresh_from_db()
    assert told.row.state == "succeeded"


def test_applied_waits_for_a_call_that_goes_on(database: Server) -> None:
    """While the request is being made, its own answer is waited for."""
    story = Story(ago=timedelta(seconds=2)).claim()
    told = story.effect().send()

    with pytest.raises(ActionRefusedError, match="A request is being made now"):
        resolve(told, "applied")


@pytest.mark.parametrize(
    ("tell", "why"),
    [
        (lambda story: story.effect().send().answer("confirmed"), "already"),
        (lambda story: story.effect(), "Nothing was sent"),
        (lambda story: story.effect().send().answer("rejected"), "itself rejected"),
    ],
)
def test_what_is_known_is_not_judged(database: Server, tell: Callable[[Story], EffectStory], why: str) -> None:
    """Where the provider has spoken, or nothing was sent, there is nothing to judge."""
    story = Story().claim()
    told = tell(story)
    story.fail(error_class="permanent", dead="permanent")

    for verdict in ("applied", "not_applied", "abandon"):
        with pytest.raises(ActionRefusedError, match=why if verdict == "applied" else "nothing unclear"):
            resolve(told, verdict)


@pytest.mark.parametrize("inferred", ["not_applied", "abandon"])
def test_positive_evidence_overrides_a_judgement(database: Server, inferred: str) -> None:
    """What was ruled out or given up, and turns out to have been applied, counts as applied."""
    told = dead()
    resolve(told, inferred)
    resolve(told, "applied")

    told.row.refresh_from_db()
    assert (told.row.state, told.row.resolved_by) == ("succeeded", "operator")
    assert replayed(told) is OnReplay.SKIP
    assert healthy() == {}


def test_late_confirmation_wins_over_not_applied(database: Server) -> None:
    """The provider's own late confirmation is taken, and the owner is told that the judgement was wrong."""
    told = dead()
    resolve(told, "not_applied")
    assert Send.objects.get().outcome == "not_applied"
    with Told() as heard:
        record(held(told.story.job), Send.objects.get().pk, Confirmed("ch_8"))

    told.row.refresh_from_db()
    assert (told.row.state, told.row.resolved_by, told.row.provider_ref) == ("succeeded", "send", "ch_8")
    assert heard.named("owner.alert")


def test_confirmed_and_rejected_sends_stay(database: Server) -> None:
    """Only unclear requests are judged."""
    story = Story().claim()
    told = story.effect(dedupe="none").send().answer("rejected").send().answer("unknown")
    story.fail(error_class="permanent", dead="effect_review")

    resolve(told, "not_applied")

    assert [send.outcome for send in told.sends] == ["rejected", "not_applied"]
    assert told.sends[0].reason == "no"


def test_changed_effect_is_looked_at_again(database: Server) -> None:
    """An answer that arrived after the look changes the plan; so does another verdict or other evidence."""
    told = dead()
    digest = Resolve(told.row.pk, "not_applied", evidence=EVIDENCE, using="default").plan().digest
    with pytest.raises(ActionChangedError):
        Resolve(told.row.pk, "not_applied", evidence=EVIDENCE + "!", using="default").submit(operator(), digest=digest)
    record(held(told.story.job), Send.objects.get().pk, Confirmed("ch_8"))

    with pytest.raises(ActionRefusedError):
        Resolve(told.row.pk, "not_applied", evidence=EVIDENCE, using="default").submit(operator(), digest=digest)

    assert SideEffect.objects.get().state == "succeeded"
    assert not OperatorAction.objects.exists()


def test_user_without_the_right_writes_nothing(database: Server) -> None:
    """The permission is asked under the lock."""
    told = dead()

    with pytest.raises(PermissionDenied, match="resolve_sideeffect"):
        resolve(told, "applied", actor="eve", user=Person())

    told.row.refresh_from_db()
    assert told.row.state == "ambiguous"
    assert not Reconciliation.objects.exists()
    assert not OperatorAction.objects.exists()


@pytest.mark.parametrize(
    ("verdict", "given"),
    [
        ("maybe", {"evidence": EVIDENCE}),
        ("applied", {}),
        ("applied", {"provider_ref": "x" * 256}),
        ("applied", {"provider_ref": "a\x00b"}),
        ("applied", {"provider_ref": "a\ud800b"}),
        ("not_applied", {}),
        ("not_applied", {"evidence": "saw it"}),
        ("not_applied", {"evidence": EVIDENCE, "provider_ref": "ch_1"}),
        ("not_applied", {"evidence": EVIDENCE + "\x00"}),
        ("abandon", {"evidence": "x" * 2001}),
    ],
)
def test_bad_input_is_refused_before_anything(verdict: str, given: dict[str, str]) -> None:
    """What cannot be stored or says nothing is refused in the same words on every database."""
    with pytest.raises(OperatorError):
        Resolve(uuid.uuid4(), verdict, **given, using="default")


def test_unknown_effect_is_named(database: Server) -> None:
    """An id that is no effect's is a lookup error."""
    with pytest.raises(LookupError, match="no side effect"):
        Resolve(uuid.uuid4(), "applied", provider_ref="x", using="default").plan()
