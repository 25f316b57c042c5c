"""What a replay would do to each effect, and whether it is safe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from django_jobs import job
from django_jobs.define import registry
from django_jobs.operate.history import history_of
from django_jobs.operate.replay_plan import EffectPlan, OnReplay, ReplayPlan, plan_replay
from tests.integration.operate.stories import LIFETIME, EffectStory, Story

pytestmark = pytest.mark.django_db

Tell = Callable[[Story], EffectStory]


def plan_of(story: Story) -> ReplayPlan:
    """Return the plan of a replay now."""
    return plan_replay(history_of(story.job, using="default"))


def dead(tell: Tell, *, ago: timedelta = timedelta(minutes=10)) -> tuple[EffectStory, EffectPlan, ReplayPlan]:
    """Let a job die after what ``tell`` tells of its effect; returns that and the plan."""
    story = Story(ago=ago).claim(lease=timedelta(days=2))
    effect = tell(story)
    plan = plan_of(story.fail(error_class="permanent", dead="permanent"))
    return effect, plan.effects[0], plan


@pytest.mark.parametrize(
    ("tell", "expected"),
    [
        (lambda story: story.effect().send().answer("confirmed"), OnReplay.SKIP),
        (lambda story: story.effect(can_reconcile=True).send().answer("unknown").ask("succeeded"), OnReplay.SKIP),
        (lambda story: story.effect(dedupe="none", on_ambiguous="accept").send().answer("unknown"), OnReplay.SKIP),
        (lambda story: story.effect(dedupe="none").send().answer("unknown").abandon(), OnReplay.SKIP),
        (lambda story: story.effect(), OnReplay.SEND),
        (lambda story: story.effect().send().answer("rejected"), OnReplay.SEND),
        (lambda story: story.effect().send().answer("rejected", key_is_burnt=True), OnReplay.SEND),
        (lambda story: story.effect().send(), OnReplay.SAME_KEY),
        (lambda story: story.effect().send().answer("unknown"), OnReplay.SAME_KEY),
        (lambda story: story.effect(dedupe="natural").send().answer("unknown"), OnReplay.SAME_KEY),
        (lambda story: story.effect(can_reconcile=True).send().answer("unknown"), OnReplay.RECONCILE),
        (lambda story: story.effect(dedupe="none", can_reconcile=True).send(), OnReplay.RECONCILE),
        (lambda story: story.effect(dedupe="none", on_ambiguous="resend").send(), OnReplay.MAY_REPEAT),
        (lambda story: story.effect(dedupe="none").send().answer("unknown"), OnReplay.NEEDS_DECISION),
    ],
    ids=[
        "confirmed", "found", "accepted", "abandoned", "planned", "rejected", "burnt key", "open under a key",
        "unclear under a key", "natural", "key and can be asked", "can be asked", "resend", "blind",
    ],
)  # fmt: skip
def test_effect_falls_into_its_class(tell: Tell, expected: OnReplay) -> None:
    """What is known of an effect and what its provider promises decide what a replay would do."""
    effect, plan, _ = dead(tell)

    assert plan.on_replay is expected
    assert (plan.effect_id, plan.name, plan.provider) == (effect.row.pk, "charge", "payments")
    assert plan.why.endswith(".")


def test_protecting_key_says_until_when() -> None:
    """The same key protects until its lifetime ends, less the clocks' skew and the call itself."""
    effect, plan, _ = dead(lambda story: story.effect().send().answer("unknown"))

    first = effect.sends[0]
    assert plan.until == first.started_at + LIFETIME - timedelta(minutes=5) - (first.deadline_at - first.started_at)
    assert plan.label.startswith("same key until 20")


def test_expired_key_protects_no_more() -> None:
    """After its lifetime the same key is a second effect: a human decides."""
    _, plan, _ = dead(lambda story: story.effect().send().answer("unknown"), ago=timedelta(days=3))

    assert plan.on_replay is OnReplay.NEEDS_DECISION


def test_key_of_unknown_lifetime_protects_nothing() -> None:
    """A stored promise without a lifetime is not believed."""
    _, plan, _ = dead(lambda story: story.effect(key_lifetime_seconds=None).send().answer("unknown"))

    assert plan.on_replay is OnReplay.NEEDS_DECISION


def test_send_that_may_still_arrive_is_waited_for() -> None:
    """Before a send has settled, the plan says when the provider can be asked for good."""
    effect, plan, _ = dead(
        lambda story: story.effect(dedupe="none", can_reconcile=True).send(settle=timedelta(hours=3)).answer("unknown")
    )

    assert plan.on_replay is OnReplay.RECONCILE
    assert plan.until == effect.sends[0].settled_at
    assert ", not before 20" in plan.label


def test_question_after_the_last_send_is_not_asked_twice() -> None:
    """A provider with keys that was asked in vain is sent the same key again."""
    _, plan, _ = dead(lambda story: story.effect(can_reconcile=True).send().answer("unknown").ask("unavailable"))

    assert plan.on_replay is OnReplay.SAME_KEY


def test_receipt_of_another_job_is_kept() -> None:
    """An effect that another job caused and this one adopted is skipped."""
    owner, adopter = Story().claim(), Story().claim()
    effect = owner.effect().send().answer("confirmed")
    adopter.adopt(effect.row).fail(error_class="permanent", dead="permanent")

    (plan,) = plan_of(adopter).effects

    assert (plan.effect_id, plan.on_replay) == (effect.row.pk, OnReplay.SKIP)
    assert str(owner.job.pk) in plan.why


def test_receipt_that_does_not_hold_needs_a_decision() -> None:
    """An adopted effect that is not applied after all is for a human."""
    owner, adopter = Story().claim(), Story().claim()
    effect = owner.effect(can_reconcile=True).send().answer("unknown")
    adopter.adopt(effect.row).fail(error_class="permanent", dead="permanent")

    (plan,) = plan_of(adopter).effects

    assert plan.on_replay is OnReplay.NEEDS_DECISION


def test_worst_effect_decides() -> None:
    """One effect that needs a decision makes the whole replay unsafe."""
    story = Story().claim()
    story.effect("order:1").send().answer("confirmed")
    story.effect("order:2", dedupe="none").send().answer("unknown")

    plan = plan_of(story.fail(error_class="permanent", dead="permanent"))

    assert plan.worst is OnReplay.NEEDS_DECISION
    assert not plan.safe


@pytest.mark.parametrize(
    ("tell", "said"),
    [
        (lambda story: story, "this job is queued"),
        (lambda story: story.claim().succeed(), "this job is succeeded"),
        (lambda story: story.claim().fail(dead="age").discard(), "was discarded; that decision stands"),
        (lambda story: story.claim().fail(dead="age"), ""),
    ],
)
def test_replay_is_refused_with_its_reason(tell: Callable[[Story], Story], said: str) -> None:
    """Only an open dead letter can be replayed; otherwise the plan says why not."""
    refused = plan_of(tell(Story())).refused

    assert said in refused
    assert bool(said) == bool(refused)


def test_useless_job_needs_a_new_time() -> None:
    """A dead letter whose usefulness has passed is not replayed as it is."""
    story = Story()
    story._set(useful_until=story.now)

    assert "a replay must give a new time" in plan_of(story.expire()).refused


@pytest.fixture
def not_atomic() -> Iterator[str]:
    """A job type that opted out of its transaction."""

    @job(type="tests.not_atomic", atomic=False)
    def handler() -> None:
        """Do nothing."""

    yield "tests.not_atomic"
    registry.unregister("tests.not_atomic")


@pytest.mark.parametrize(
    ("job_type", "said", "safe"),
    [
        ("shop.note_order", "commit together with the success", True),
        ("shop.charge_order", "inside complete() or step() commit once", True),
        ("tests.not_atomic", "atomic=False", False),
        ("gone.type", "does not know job type 'gone.type'", False),
    ],
)
def test_rows_of_the_handler_are_told(not_atomic: str, job_type: str, said: str, safe: bool) -> None:
    """How a type commits decides what becomes of its rows."""
    plan = plan_of(Story(job_type=job_type).claim().fail(dead="unknown_budget"))

    assert said in plan.rows
    assert plan.safe is safe
