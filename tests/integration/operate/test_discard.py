"""The discard of one dead letter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection

from django_jobs.exceptions import ActionChangedError, ActionRefusedError
from django_jobs.models import Compensation, IdempotencyKey, Job, OperatorAction, SideEffect
from django_jobs.operate.discard import Discard
from django_jobs.operate.replay import Replay
from django_jobs.operate.verify import verify
from tests.factories_compensation import CompensationFactory
from tests.factories_decisions import Person, decided, operator
from tests.integration.operate.stories import Story
from tests.scenes import Told, everything

pytestmark = pytest.mark.django_db


def discard(story: Story) -> Discard:
    """Return the decision to discard the job of a story."""
    return Discard(story.job.pk, using="default")


def charged(outcome: str = "confirmed", **fields: Any) -> tuple[Story, Any]:
    """A dead letter after a charge with this outcome."""
    story = Story(key="order:7").claim()
    effect = story.effect(**fields).send().answer(outcome)
    return story.fail(error_class="permanent", dead="permanent"), effect


def test_discard_settles_a_dead_letter() -> None:
    """It is finished, its effects and its key stay, and the audit says who wanted it."""
    story, _ = charged()
    effects, keys = list(SideEffect.objects.values()), list(IdempotencyKey.objects.values())
    with Told() as told:
        done = decided(discard(story))

    row = Job.objects.get()
    assert (row.state, row.resolution) == ("dead_lettered", "discarded")
    assert row.finished_at is not None
    assert list(SideEffect.objects.values()) == effects
    assert list(IdempotencyKey.objects.values()) == keys
    assert OperatorAction.objects.get().action == "discard"
    assert "was discarded" in done.message
    assert len(told.named("job.discard")) == 1
    assert verify(using="default").violated == ()


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_decision_that_stands_still_lets_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A web process that is frozen between the lock and the end of a decision keeps the row for five seconds at most."""
    story, _ = charged()
    decision, limits = discard(story), []
    real = decision.lock

    def lock() -> None:
        real()
        with connection.cursor() as cursor:
            cursor.execute("SHOW idle_in_transaction_session_timeout")
            limits.append(cursor.fetchone()[0])

    monkeypatch.setattr(decision, "lock", lock)
    decided(decision)

    assert set(limits) == {"5s"}
    with connection.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        assert cursor.fetchone()[0] == "0"


def test_second_submit_does_nothing() -> None:
    """A double click settles once."""
    story, _ = charged()
    digest = discard(story).plan().digest
    discard(story).submit(operator(), digest=digest)
    after = everything()

    with pytest.raises(ActionRefusedError, match="was discarded already"):
        discard(story).submit(operator(), digest=digest)

    assert everything() == after


def test_discarded_job_is_not_replayed() -> None:
    """What was settled stays settled."""
    story, _ = charged()
    decided(discard(story))

    with pytest.raises(ActionRefusedError, match="that decision stands"):
        decided(Replay(story.job.pk, using="default"))


@pytest.mark.parametrize(
    ("outcome", "fields", "asked"),
    [("confirmed", {}, False), ("rejected", {}, False), ("unknown", {}, True), ("unknown", {"dedupe": "none"}, True)],
)
def test_effect_of_unknown_outcome_is_acknowledged(outcome: str, fields: dict[str, Any], asked: bool) -> None:
    """After a discard nobody asks any more: each such effect needs a yes of its own."""
    story, effect = charged(outcome, **fields)

    names = [item.name for item in discard(story).plan().acknowledge]

    assert names == ["state", *([f"effect-{effect.row.pk}"] if asked else [])]


def test_late_evidence_changes_the_plan() -> None:
    """An answer that came after the look is looked at first."""
    story, effect = charged("unknown")
    digest = discard(story).plan().digest
    effect.answer("confirmed")

    with pytest.raises(ActionChangedError):
        discard(story).submit(operator(), digest=digest)
    assert Job.objects.get().resolution is None


@pytest.mark.parametrize("tell", [lambda story: story, lambda story: story.claim(), lambda story: story.cancel()])
def test_only_a_dead_letter_is_discarded(tell: Callable[[Story], Story]) -> None:
    """Whatever else a job is, it is refused."""
    with pytest.raises(ActionRefusedError, match="Only a dead letter can be discarded"):
        decided(discard(tell(Story())))


@pytest.mark.parametrize(("trait", "allowed"), [("open", False), ("succeeded", False), ("void", True)])
def test_compensation_stands_against_a_discard_until_it_is_void(trait: str, allowed: bool) -> None:
    """The job whose effect is taken back is settled by that, not by a discard."""
    story, effect = charged()
    CompensationFactory(effect=effect.row, **({} if trait == "open" else {trait: True}))

    if allowed:
        decided(discard(story))
    else:
        with pytest.raises(ActionRefusedError, match="taken back by job"):
            decided(discard(story))

    assert (Job.objects.get().resolution == "discarded") is allowed


def test_discarded_compensation_is_void() -> None:
    """The job that was to take an effect back is given up: another one may be asked for, and the plan says so."""
    story, effect = charged()
    taking_back = Story().claim().fail(error_class="transient", dead="age")
    CompensationFactory(effect=effect.row, job_id=taking_back.job.pk)
    lines = " ".join(discard(taking_back).plan().lines)

    decided(discard(taking_back))

    row = Compensation.objects.get()
    assert row.outcome == "void"
    assert row.closed_at == Job.objects.get(pk=taking_back.job.pk).finished_at
    assert f"take back an effect of job {story.job.pk}: that is void" in lines
    CompensationFactory(effect=effect.row)


def test_user_without_the_permission_changes_nothing() -> None:
    """Another permission is none."""
    story, _ = charged()

    with pytest.raises(PermissionDenied, match="discard_job"):
        decided(discard(story), user=Person(holds={"django_jobs.replay_job"}))

    assert Job.objects.get().resolution is None
    assert not OperatorAction.objects.exists()
