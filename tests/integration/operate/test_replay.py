"""The replay of one dead letter: what is refused, what is kept, and what has to be acknowledged."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from django_jobs import clock, job
from django_jobs.define import registry
from django_jobs.exceptions import ActionChangedError, ActionRefusedError, OperatorError
from django_jobs.models import Attempt, IdempotencyKey, Job, JobPayload, OperatorAction, Send, SideEffect
from django_jobs.operate.action import Operator
from django_jobs.operate.lookup import JobNotFoundError
from django_jobs.operate.replay import Replay
from django_jobs.operate.verify import verify
from tests.factories import WorkerFactory
from tests.factories_compensation import CompensationFactory
from tests.factories_decisions import Person, decided, operator
from tests.integration.operate.stories import LIFETIME, Story, later
from tests.scenes import Told, everything

pytestmark = pytest.mark.django_db

Tell = Callable[[Story], object]


def dead(**fields: Any) -> Story:
    """A dead letter after two failures and a loss."""
    story = Story(key="order:7", **fields).claim().fail().claim().lose().claim(alone="child")
    return story.fail(dead="unknown_budget")


def charged(outcome: str = "unknown", **fields: Any) -> tuple[Story, Any]:
    """A dead letter after a charge with this outcome."""
    story = Story(key="order:7").claim()
    effect = story.effect(**fields).send().answer(outcome)
    return story.fail(error_class="permanent", dead="permanent"), effect


def replay(story: Story, **options: Any) -> Replay:
    """Return the decision to replay the job of a story."""
    return Replay(story.job.pk, using="default", **options)


def test_replay_begins_a_generation_of_the_same_job() -> None:
    """Id, key, attempt numbers and effects stay; counters, isolation and the time of ages begin anew."""
    story = dead()
    effects, keys = list(SideEffect.objects.values()), list(IdempotencyKey.objects.values())
    with Told() as told:
        done = decided(replay(story))

    row = Job.objects.get(pk=story.job.pk)
    assert (row.state, row.generation, row.fence, row.dead_reason, row.dead_at) == ("queued", 2, 3, "", None)
    counters = ("unknown", "transient", "lost", "exit_lost", "silent_lost", "free", "unchanged")
    assert {getattr(row, f"{name}_count") for name in counters} == {0}
    assert (row.isolation, row.waiting_since, row.extra_attempts) == ("", None, 0)
    assert row.generation_started_at == row.available_at > story.job.dead_at
    assert list(SideEffect.objects.values()) == effects
    assert list(IdempotencyKey.objects.values()) == keys
    assert Attempt.objects.filter(job_id=row.pk).count() == 3
    assert f"generation {row.generation}" in done.message
    assert len(told.named("job.replay")) == 1
    assert verify(using="default").violated == ()


def test_replay_is_audited_with_what_was_acknowledged() -> None:
    """The audit keeps who, for whom, why, the plan, and the row as it was before."""
    story = dead()
    plan = replay(story).plan()

    done = replay(story).submit(operator(reason_code="code_fixed", ticket="OPS-1"), digest=plan.digest)

    row = OperatorAction.objects.get(pk=done.action.pk)
    assert (row.action, row.actor, row.owner, row.reason_code, row.ticket) == (
        "replay", "ada", "billing", "code_fixed", "OPS-1",
    )  # fmt: skip
    assert (row.job_id, row.from_state, row.from_generation) == (story.job.pk, "dead_lettered", 1)
    assert row.from_revision == story.job.revision
    assert row.given_digest == row.plan_digest == plan.digest
    facts = json.loads(row.plan)
    assert (facts["action"], facts["job"], facts["dead_reason"]) == ("replay", str(story.job.pk), "unknown_budget")
    assert "order_id" not in row.plan


def test_second_submit_of_one_plan_does_nothing() -> None:
    """A double click: the second finds another revision."""
    story = dead()
    decision, digest = replay(story), replay(story).plan().digest
    decision.submit(operator(), digest=digest)
    after = everything()

    with pytest.raises(ActionRefusedError, match="this job is queued"):
        decision.submit(operator(), digest=digest)

    assert everything() == after
    assert OperatorAction.objects.count() == 1


def test_old_plan_is_no_yes_to_the_next_death() -> None:
    """A job that was replayed and died again needs a new look."""
    story = dead()
    digest = replay(story).plan().digest
    decided(replay(story))
    Job.objects.filter(pk=story.job.pk).update(
        state="dead_lettered", dead_reason=story.job.dead_reason, dead_at=story.job.dead_at
    )

    with pytest.raises(ActionChangedError) as raised:
        replay(story).submit(operator(), digest=digest)

    assert raised.value.plan.digest == replay(story).plan().digest
    assert Job.objects.get().generation == 2


@pytest.mark.parametrize(
    "happens",
    [
        lambda effect: effect.answer("confirmed"),
        lambda effect: effect.ask("pending"),
        lambda effect: effect._set(revision=2),
        lambda effect: Send.objects.update(outcome="rejected"),
    ],
    ids=["late answer", "question", "revision", "outcome"],
)
def test_late_evidence_changes_the_plan(happens: Callable[[Any], object]) -> None:
    """What was learnt between the look and the yes is looked at first."""
    story, effect = charged()
    digest = replay(story).plan().digest
    happens(effect)

    with pytest.raises(ActionChangedError):
        replay(story).submit(operator(), digest=digest)

    assert Job.objects.get().state == "dead_lettered"
    assert not OperatorAction.objects.exists()


def test_key_that_runs_out_changes_the_plan() -> None:
    """Time alone makes a look stale: the provider's key protects no more."""
    story, _ = charged()
    digest = replay(story).plan().digest

    with later(hours=LIFETIME.total_seconds() / 3600), pytest.raises(ActionRefusedError, match="A human decides first"):
        replay(story).submit(operator(), digest=digest)


def test_time_that_changes_nothing_keeps_the_plan() -> None:
    """While everything is as it was, an old look is as good as a new one."""
    story, _ = charged()
    digest = replay(story).plan().digest

    with later(hours=3):
        replay(story).submit(operator(), digest=digest)

    assert Job.objects.get().state == "queued"


def test_code_of_live_workers_is_part_of_the_plan() -> None:
    """When other code runs by now, the operator should know."""
    story = dead()
    digest = replay(story).plan().digest
    WorkerFactory(code_version="build-2")

    assert replay(story).plan().facts["code"] == {"failed": "build-1", "live": ["build-2"]}
    with pytest.raises(ActionChangedError):
        replay(story).submit(operator(), digest=digest)


def test_same_code_is_acknowledged_by_those_who_say_it_was_fixed() -> None:
    """No live worker runs other code than what failed: that is asked of one reason alone."""
    WorkerFactory(code_version="build-1")
    asked = {item.name: item.reason_code for item in replay(dead()).plan().acknowledge}

    assert asked == {"state": "", "same_code": "code_fixed"}


def test_effect_that_may_happen_again_is_acknowledged_by_itself() -> None:
    """Each such effect has a box of its own, named by the effect."""
    story = Story().claim()
    again = story.effect("order:1", dedupe="none", on_ambiguous="resend").send().answer("unknown")
    story.effect("order:2").send().answer("confirmed")
    story.fail(error_class="permanent", dead="permanent")

    names = [item.name for item in replay(story).plan().acknowledge]

    assert names == ["state", f"effect-{again.row.pk}"]


@pytest.mark.parametrize(
    ("tell", "said"),
    [
        (lambda story: story, "this job is queued"),
        (lambda story: story.claim(), "this job is running"),
        (lambda story: story.claim().succeed(), "this job is succeeded"),
        (lambda story: story.cancel(), "this job is cancelled"),
        (
            lambda story: story.claim().fail(error_class="transient", dead="age").discard(),
            "was discarded; that decision stands",
        ),
    ],
)
def test_only_an_open_dead_letter_is_replayed(tell: Tell, said: str) -> None:
    """In every other state the replay is refused with its reason, and nothing changes."""
    story = Story()
    tell(story)
    before, actions = everything(), OperatorAction.objects.count()

    with pytest.raises(ActionRefusedError, match=said) as raised:
        decided(replay(story))

    assert raised.value.plan.refused == str(raised.value)
    assert everything() == before
    assert OperatorAction.objects.count() == actions


def test_effect_that_needs_a_decision_comes_first() -> None:
    """While nobody knows what became of an effect, the job is not replayed; the text says what to do."""
    story, _ = charged(dedupe="none")

    with pytest.raises(ActionRefusedError, match=r"what became of charge \(order:7\).*Resolve it, then replay"):
        decided(replay(story))


@pytest.mark.parametrize(("trait", "allowed"), [("open", False), ("succeeded", False), ("void", True)])
def test_compensation_stands_against_a_replay_until_it_is_void(trait: str, allowed: bool) -> None:
    """What is being, or was, taken back is not done again."""
    story, effect = charged("confirmed")
    CompensationFactory(effect=effect.row, **({} if trait == "open" else {trait: True}))

    if allowed:
        decided(replay(story))
    else:
        with pytest.raises(ActionRefusedError, match="taken back by job"):
            decided(replay(story))

    assert (Job.objects.get().state == "queued") is allowed


def test_compensation_between_look_and_yes_stands_against_it() -> None:
    """The yes is judged under the lock."""
    story, effect = charged("confirmed")
    digest = replay(story).plan().digest
    CompensationFactory(effect=effect.row)

    with pytest.raises(ActionRefusedError, match="is being taken back"):
        replay(story).submit(operator(), digest=digest)


def test_expired_job_needs_a_new_time() -> None:
    """It is refused without one; with one it is useful from its new start."""
    story = Story()
    story._set(useful_until=story.now)
    story.expire()

    with pytest.raises(ActionRefusedError, match="a replay must give a new time"):
        decided(replay(story))
    decided(replay(story, useful_for=timedelta(hours=1), run_after=timedelta(hours=2)))

    row = Job.objects.get()
    assert row.state == "scheduled"
    assert row.useful_until - row.available_at == timedelta(hours=1)
    assert row.generation_started_at == row.available_at > clock.now() + timedelta(minutes=119)


def test_start_after_the_end_of_usefulness_is_refused() -> None:
    """A start that comes too late would only make a second dead letter."""
    story = dead()
    story._set(useful_until=clock.now() + timedelta(hours=1))

    with pytest.raises(ActionRefusedError, match="would start too late"):
        decided(replay(story, run_after=timedelta(hours=2)))


def test_start_at_an_instant_is_kept() -> None:
    """An instant in the future schedules, one in the past does not."""
    story, moment = dead(), datetime.now(UTC) + timedelta(days=1)
    decided(replay(story, run_after=moment))
    assert (Job.objects.get().state, Job.objects.get().available_at) == ("scheduled", moment)

    second = Story().claim().fail(error_class="transient", dead="age")
    decided(replay(second, run_after=datetime(2020, 1, 1, tzinfo=UTC)))
    assert Job.objects.get(pk=second.job.pk).state == "queued"


def test_what_the_operator_adds_is_part_of_the_plan() -> None:
    """A yes to one extra attempt is none to five."""
    story = dead()
    digest = replay(story, extra_attempts=1).plan().digest

    with pytest.raises(ActionChangedError):
        replay(story, extra_attempts=5).submit(operator(), digest=digest)
    replay(story, extra_attempts=1).submit(operator(), digest=digest)

    assert Job.objects.get().extra_attempts == 1


@pytest.mark.parametrize(
    ("breaks", "said"),
    [
        (lambda story: JobPayload.objects.all().delete(), "Its arguments are gone"),
        (lambda story: story._set(content_removed_at=story.now), "Its arguments are gone"),
        (lambda story: IdempotencyKey.objects.all().delete(), "Another job holds its idempotency key order:7"),
    ],
    ids=["payload", "content", "key"],
)
def test_job_without_payload_or_key_is_not_replayed(breaks: Tell, said: str) -> None:
    """Without its arguments it cannot run, without its key it could run beside its successor."""
    story = dead()
    breaks(story)

    with pytest.raises(ActionRefusedError, match=said):
        decided(replay(story))


def test_job_that_is_not_there_is_said_to_be_so() -> None:
    """An id of nothing is a lookup error that names it."""
    nobody = uuid.uuid4()

    with pytest.raises(JobNotFoundError, match=str(nobody)):
        Replay(nobody, using="default").plan()
    with pytest.raises(JobNotFoundError):
        Replay(nobody, using="default").submit(operator(), digest="v1:0")


@pytest.mark.parametrize(
    "options",
    [
        {"extra_attempts": -1},
        {"extra_attempts": 101},
        {"extra_attempts": True},
        {"extra_attempts": "1"},
        {"run_after": datetime(2026, 1, 1)},  # noqa: DTZ001  naive on purpose
        {"run_after": timedelta(seconds=-1)},
        {"run_after": timedelta(days=5000)},
        {"run_after": "now"},
        {"useful_for": timedelta(0)},
        {"useful_for": 5},
    ],
)
def test_what_cannot_be_meant_is_refused_before_any_statement(options: dict[str, Any]) -> None:
    """Numbers and times out of range, and values of other types, are typed errors."""
    with pytest.raises(OperatorError):
        Replay(uuid.uuid4(), using="default", **options)


@pytest.mark.parametrize("code", ["nonsense", None, []])
def test_reason_code_that_is_none_is_refused(code: Any) -> None:
    """Also one that no table could look up."""
    with pytest.raises(OperatorError, match="reason code must be one of"):
        Operator(actor="ann", owner="ops", reason="because it is so", reason_code=code)


def test_id_must_be_one() -> None:
    """A text is no id."""
    with pytest.raises(OperatorError, match="a UUID"):
        Replay("0198", using="default")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["", " " * 12, "short", "x" * 2001, "because\x00it is", "because \ud800 it is", None])
def test_reason_that_cannot_be_stored_is_refused(value: Any) -> None:
    """Too short, too long, NUL and lone surrogates never reach the database."""
    with pytest.raises(OperatorError):
        decided(replay(dead()), reason=value)


@pytest.fixture
def guarded() -> Iterator[str]:
    """A job type whose replay needs a permission of its own."""

    @job(type="tests.guarded", replay_permission="billing.replay_charges")
    def handler() -> None:
        """Do nothing."""

    yield "tests.guarded"
    registry.unregister("tests.guarded")


@pytest.mark.parametrize(
    ("holds", "missing"),
    [
        (set(), "django_jobs.replay_job"),
        ({"billing.replay_charges"}, "django_jobs.replay_job"),
        ({"django_jobs.replay_job"}, "billing.replay_charges"),
    ],
)
def test_user_without_a_permission_changes_nothing(guarded: str, holds: set[str], missing: str) -> None:
    """The replay's permission and the job type's own are both asked for under the lock."""
    story = Story(job_type=guarded).claim().fail(error_class="transient", dead="age")
    before = everything()

    with pytest.raises(PermissionDenied, match=missing):
        decided(replay(story), user=Person(holds=holds))

    assert everything() == before
    assert not OperatorAction.objects.exists()


def test_user_with_both_permissions_may(guarded: str) -> None:
    """Nothing else is needed."""
    story = Story(job_type=guarded).claim().fail(error_class="transient", dead="age")

    decided(replay(story), user=Person(holds={"django_jobs.replay_job", "billing.replay_charges"}))

    assert Job.objects.get().state == "queued"
