"""The replay of many dead letters: what is counted, what a request does, and what it never does twice."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from django_jobs import clock
from django_jobs.domain.states import ReplayState
from django_jobs.exceptions import ActionChangedError, ActionRefusedError, OperatorError, PayloadError
from django_jobs.models import Job, OperatorAction, ReplayItem, ReplayRequest
from django_jobs.operate.action import Done, Plan
from django_jobs.operate.discard import Discard
from django_jobs.operate.replay import Replay
from django_jobs.operate.replay_many import CancelReplay, ReplayMany
from django_jobs.operate.replay_runner import REPLAYS, replay_one, turn
from django_jobs.operate.selection import Selection, selection_from, selection_of
from django_jobs.operate.verify import verify
from django_jobs.store.replay_requests import finish, is_due, keep
from tests.factories import JobFactory
from tests.factories_compensation import CompensationFactory
from tests.factories_decisions import Person, ReplayRequestFactory, decided, operator
from tests.integration.operate.stories import Story, later
from tests.scenes import everything

pytestmark = pytest.mark.django_db

WORKER = uuid.uuid4()
QUEUE = Selection(queue="payments")


def dead(**fields: Any) -> Story:
    """A dead letter of a harmless kind, without an effect."""
    return Story(**fields).claim().fail(error_class="permanent", dead="permanent")


def charged(outcome: str = "unknown", **fields: Any) -> Story:
    """A dead letter after a charge."""
    story = Story().claim()
    story.effect(f"order:{uuid.uuid4()}", **fields).send().answer(outcome)
    return story.fail(error_class="permanent", dead="permanent")


def many(selection: Selection = QUEUE, **options: Any) -> ReplayMany:
    """Return the decision to replay these."""
    return ReplayMany(selection, using="default", **options)


def asked(selection: Selection = QUEUE, **options: Any) -> ReplayRequest:
    """Ask for a replay of these; returns the request."""
    decision = many(selection, **{"per_minute": 60_000, **options})
    decided(decision)
    return ReplayRequest.objects.get(pk=decision.request_id)


def run(worker: uuid.UUID = WORKER, *, turns: int = 20) -> int:
    """Let a worker work on what is due until nothing is; returns the number of turns."""
    for number in range(turns):
        pause = turn(worker, using="default")
        if pause is None:
            return number
        moment = clock.now() + timedelta(seconds=pause + 0.001)
        if pause:
            with clock.override(lambda moment=moment: moment):
                if turn(worker, using="default") is None:
                    return number
    return turns


def _cancelled(request_id: uuid.UUID) -> Done:
    return decided(CancelReplay(request_id, using="default"))


def _stopped(request_id: uuid.UUID) -> bool:
    return finish(request_id, ReplayState.STOPPED, using="default", because="its canary died")


def outcomes() -> dict[uuid.UUID, str]:
    """Return what became of each job of the only request."""
    return dict(ReplayItem.objects.values_list("job_id", "outcome"))


def test_preview_counts_per_class() -> None:
    """Each selected dead letter falls into one class; what needs a decision is never replayed with others."""
    dead()
    charged("confirmed")
    charged("rejected")
    charged("unknown")
    charged("unknown", can_reconcile=True)
    charged("unknown", dedupe="none", on_ambiguous="resend")
    charged("unknown", dedupe="none")
    dead(useful_until=clock.now() - timedelta(seconds=1))
    dead(queue_name="other")
    Story().claim()

    plan = many().plan()

    assert plan.facts["counts"] == {
        "skip": 2, "send": 1, "same_key": 1, "reconcile": 1, "may_happen_again": 1, "needs_decision": 1, "refused": 1,
    }  # fmt: skip
    assert plan.facts["total"] == 5
    assert [item.name for item in plan.acknowledge] == ["count"]
    risky = many(acknowledged=["skip", "may_happen_again"]).plan()
    assert (risky.facts["total"], [item.name for item in risky.acknowledge]) == (3, ["count", "may_happen_again"])
    assert risky.digest != plan.digest


def test_preview_reads_a_fixed_number_of_rows() -> None:
    """Two hundred jobs cost as many queries as two."""
    numbers = []
    for add in (2, 60):
        for _ in range(add):
            charged()
        with CaptureQueriesContext(
            connection,
        ) as seen:
            many().plan()
        numbers.append(len(seen))

    assert numbers[0] == numbers[1]


def test_request_replays_what_was_acknowledged() -> None:
    """Each job is replayed by a decision of its own; the others are left as they are, with the reason."""
    safe, same_key, blind = dead(), charged(), charged(dedupe="none")
    request = asked()

    run()

    assert outcomes() == {safe.job.pk: "queued", same_key.job.pk: "queued", blind.job.pk: "refused"}
    assert "A human decides first" in ReplayItem.objects.get(outcome="refused").why
    rows = OperatorAction.objects.filter(action="replay")
    assert {(row.job_id, row.request_id, row.actor, row.reason) for row in rows} == {
        (story.job.pk, request.pk, "ada", "checked with the customer") for story in (safe, same_key)
    }
    request.refresh_from_db()
    assert (request.state, request.lease_owner) == ("done", None)
    assert Job.objects.get(pk=blind.job.pk).state == "dead_lettered"
    assert verify(using="default").violated == ()


def test_class_that_nobody_acknowledged_is_refused() -> None:
    """A job whose plan grew worse after the preview is not replayed."""
    story = charged("unknown")
    asked()
    story.job.effects.update(dedupe="none", on_ambiguous="resend")

    run()

    assert outcomes() == {story.job.pk: "refused"}
    assert "'may happen again', was not acknowledged" in ReplayItem.objects.get().why


def test_later_death_is_left_alone() -> None:
    """What died after the request was made was not part of it, however it was selected."""
    first, second = dead(), dead()
    asked(Selection(ids=[first.job.pk, second.job.pk]))
    Job.objects.filter(pk=first.job.pk).update(dead_at=clock.now() + timedelta(seconds=1))
    third = dead()
    Job.objects.filter(pk=third.job.pk).update(dead_at=clock.now() + timedelta(hours=1))

    run()

    assert outcomes() == {first.job.pk: "unchanged", second.job.pk: "queued"}


def test_job_that_was_settled_meanwhile_is_told_as_that() -> None:
    """Whoever reads the request's outcomes learns what became of the job."""
    first, second = dead(), dead()
    asked(Selection(ids=[first.job.pk, second.job.pk]))
    decided(Discard(first.job.pk, using="default"))
    decided(Replay(second.job.pk, using="default"))

    run()

    assert dict(ReplayItem.objects.values_list("job_id", "why")) == {
        first.job.pk: "It is no open dead letter any more: discarded.",
        second.job.pk: "It is no open dead letter any more: queued.",
    }


def test_running_it_twice_does_nothing_twice() -> None:
    """Even a runner that ignores leases and its place replays each job once."""
    stories = [dead() for _ in range(3)]
    request = asked()
    for _ in range(2):
        for story in stories:
            replay_one(request, story.job.pk, using="default")
    Job.objects.update(state="dead_lettered", dead_reason="permanent", dead_at=stories[0].now)

    assert [replay_one(request, story.job.pk, using="default") for story in stories] == [False] * 3
    assert set(Job.objects.values_list("generation", flat=True)) == {2}
    assert ReplayItem.objects.count() == OperatorAction.objects.filter(action="replay").count() == 3


def test_second_worker_waits_for_the_lease() -> None:
    """One works on a request; when it is gone, another goes on where it stopped."""
    for _ in range(25):
        dead()
    asked()
    assert turn(WORKER, using="default") is not None
    assert ReplayItem.objects.count() == 20

    other = uuid.uuid4()
    assert not is_due("default")
    assert turn(other, using="default") is None
    with later(seconds=61):
        assert is_due("default")
        turn(other, using="default")

    assert ReplayItem.objects.count() == 25
    assert OperatorAction.objects.filter(action="replay").count() == 25


def test_pace_is_kept() -> None:
    """Sixty a minute is one a second; what was refused does not count."""
    for _ in range(3):
        dead()
    charged(dedupe="none")
    asked(per_minute=60)

    start = clock.now()
    with clock.override(lambda: start):
        assert turn(WORKER, using="default") == 1.0
        assert turn(WORKER, using="default") == 1.0
    assert ReplayItem.objects.count() == 1
    with clock.override(lambda: start + timedelta(seconds=1)):
        assert turn(WORKER, using="default") == 1.0
    assert ReplayItem.objects.count() == 2


def test_fast_pace_is_kept_on_average() -> None:
    """Six hundred a minute are no more than ten at once, and then one each tenth of a second."""
    for _ in range(25):
        dead()
    asked(per_minute=600)

    start = clock.now()
    with clock.override(lambda: start):
        assert turn(WORKER, using="default") == 1.0
        assert ReplayItem.objects.count() == 10
    with clock.override(lambda: start + timedelta(seconds=1)):
        turn(WORKER, using="default")
    assert ReplayItem.objects.count() == 20


def test_canary_is_waited_for_and_stops_the_rest() -> None:
    """The first jobs decide: while they are open nothing follows, and when one dies nothing will."""
    stories = [dead() for _ in range(4)]
    request = asked(canary=2)
    turn(WORKER, using="default")
    assert len(outcomes()) == 2
    with later(seconds=5):
        assert turn(WORKER, using="default") == 2.0
    assert len(outcomes()) == 2

    first = next(iter(outcomes()))
    Job.objects.filter(pk=first).update(state="dead_lettered", dead_reason="permanent", dead_at=clock.now())
    with later(seconds=10):
        turn(WORKER, using="default")
        assert turn(WORKER, using="default") is None

    request.refresh_from_db()
    assert request.state == "stopped"
    assert str(first) in request.stopped_because
    assert Job.objects.filter(generation=1).count() == len(stories) - 2


def test_canary_that_succeeds_lets_the_rest_follow() -> None:
    """When all of the first jobs succeeded, the request goes on."""
    for _ in range(4):
        dead()
    request = asked(canary=2)
    turn(WORKER, using="default")
    Job.objects.filter(pk__in=list(outcomes())).update(state="succeeded", finished_at=clock.now())
    with later(seconds=10):
        run()

    request.refresh_from_db()
    assert request.state == "done"
    assert len(outcomes()) == 4


def test_job_whose_plan_cannot_be_made_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told as refused, and the others have their turn; a database that is away is no such failure."""
    stories = [dead() for _ in range(3)]
    request = asked()
    plan = Replay.plan

    def broken(decision: Replay) -> Plan:
        if decision.job_id == stories[0].job.pk:
            raise PayloadError("too many effects")
        return plan(decision)

    monkeypatch.setattr(Replay, "plan", broken)
    run()

    assert sorted(outcomes().values()) == ["queued", "queued", "refused"]
    assert outcomes()[stories[0].job.pk] == "refused"

    monkeypatch.setattr(Replay, "plan", lambda decision: (_ for _ in ()).throw(OperationalError("away")))
    other = dead()
    with pytest.raises(OperationalError):
        replay_one(request, other.job.pk, using="default")


def test_cancelled_request_stops() -> None:
    """What was replayed stays so; the rest is left alone, and the audit knows who stopped it."""
    for _ in range(25):
        dead()
    request = asked()
    turn(WORKER, using="default")

    decided(CancelReplay(request.pk, using="default"))

    assert turn(WORKER, using="default") is None
    assert ReplayItem.objects.count() == 20
    assert OperatorAction.objects.get(action="cancel_replay").request_id == request.pk
    with pytest.raises(ActionRefusedError, match="It is over: cancelled"):
        decided(CancelReplay(request.pk, using="default"))


@pytest.mark.parametrize("end", [_cancelled, _stopped])
def test_request_that_ends_before_a_job_has_its_turn_replays_it_no_more(
    end: Callable[[uuid.UUID], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker found the request open, and somebody ends it just then: the job under its hands is left alone too."""
    for _ in range(3):
        dead()
    request = asked()

    def ended(row: ReplayRequest, worker_id: uuid.UUID, **options: Any) -> bool:
        if not keep(row, worker_id, **options):
            return False
        end(row.pk)
        return True

    monkeypatch.setattr("django_jobs.operate.replay_runner.keep", ended)
    turn(WORKER, using="default")

    assert not ReplayItem.objects.exists()
    assert set(Job.objects.values_list("state", flat=True)) == {"dead_lettered"}
    assert not OperatorAction.objects.filter(action="replay").exists()
    request.refresh_from_db()
    assert (request.state in ("cancelled", "stopped"), request.last_job_id) == (True, None)


def test_nothing_to_do_costs_one_read() -> None:
    """Without a request a worker asks one cheap question."""
    ReplayRequestFactory(done=True)
    with CaptureQueriesContext(connection) as seen:
        assert REPLAYS.is_due("default") is False
    assert len(seen) == 1


def test_submit_needs_the_counts_that_were_seen() -> None:
    """One more dead letter of the selection is another yes."""
    dead()
    digest = many().plan().digest
    dead()

    with pytest.raises(ActionChangedError):
        many().submit(operator(), digest=digest)
    assert not ReplayRequest.objects.exists()


def test_nothing_to_replay_is_refused() -> None:
    """A request for nothing is not made."""
    charged(dedupe="none")

    with pytest.raises(ActionRefusedError, match="No selected job falls into a class"):
        decided(many())


def test_compensation_keeps_a_job_out() -> None:
    """A job whose effect is taken back is counted as one that cannot be replayed, and is refused at its turn."""
    story, other = charged("confirmed"), charged("confirmed")
    request = asked()
    CompensationFactory(effect=story.job.effects.get())

    assert many().plan().facts["counts"] == {"skip": 1, "refused": 1}
    run()

    assert outcomes() == {story.job.pk: "refused", other.job.pk: "queued"}
    assert request.total == 2


def test_each_part_of_a_filter_narrows() -> None:
    """All conditions hold together."""
    wanted = dead(owner="billing", subject="order:1")
    dead(owner="shop")
    dead_at = Job.objects.get(pk=wanted.job.pk).dead_at
    selection = Selection(
        queue="payments", job_type="shop.charge_order", dead_reason="permanent", error_class="permanent",
        error_fingerprint=Job.objects.get(pk=wanted.job.pk).error_fingerprint, owner="billing", subject="order:1",
        dead_from=dead_at, dead_to=dead_at + timedelta(seconds=1),
    )  # fmt: skip

    assert list(selection.jobs(using="default")) == [wanted.job]
    assert list(Selection(owner="billing", dead_to=dead_at).jobs(using="default")) == []
    assert list(Selection(owner="billing", dead_from=dead_at + timedelta(seconds=1)).jobs(using="default")) == []
    assert selection_of(json.dumps(selection.as_dict())) == selection


@pytest.mark.parametrize(
    "make",
    [
        lambda: Selection(),
        lambda: Selection(ids=[uuid.uuid4()], queue="a"),
        lambda: Selection(ids=[uuid.uuid4() for _ in range(501)]),
        lambda: Selection(ids=["a"]),  # type: ignore[list-item]
        lambda: Selection(queue="a\x00"),
        lambda: Selection(queue="a\ud800"),
        lambda: Selection(queue="a" * 101),
        lambda: Selection(queue=5),  # type: ignore[arg-type]
        lambda: Selection(dead_from=datetime(2026, 1, 1)),  # noqa: DTZ001  naive on purpose
        lambda: selection_from({}),
        lambda: selection_from({"queue": ""}),
        lambda: selection_from({"state": "dead_lettered"}),
        lambda: selection_from({"dead_to": "soon"}),
        lambda: many(acknowledged=[]),
        lambda: many(acknowledged="skip"),
        lambda: many(acknowledged=["needs_decision"]),
        lambda: many(acknowledged=["all"]),
        lambda: many(per_minute=0),
        lambda: many(canary=-1),
        lambda: many(extra_attempts=101),
        lambda: CancelReplay("x", using="default"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_meant_is_refused(make: Callable[[], object]) -> None:
    """Nothing, everything, and what no row can hold are typed errors before any statement."""
    with CaptureQueriesContext(connection) as seen, pytest.raises(OperatorError):
        make()
    assert len(seen) == 0


def test_each_decision_needs_its_permission() -> None:
    """The permission to replay one is none to replay many, or to stop it."""
    dead()
    before = everything()
    with pytest.raises(PermissionDenied, match="replay_job_bulk"):
        decided(many(), user=Person(holds={"django_jobs.replay_job"}))
    with pytest.raises(PermissionDenied, match="cancel_replayrequest"):
        decided(
            CancelReplay(ReplayRequestFactory().pk, using="default"), user=Person(holds={"django_jobs.replay_job_bulk"})
        )
    assert everything() == before
    assert not OperatorAction.objects.exists()


def test_jobs_that_are_no_dead_letters_are_counted() -> None:
    """Somebody who names jobs learns which of them are none."""
    alive, story = JobFactory(), dead()

    plan = many(Selection(ids=[alive.pk, story.job.pk, alive.pk])).plan()

    assert plan.facts["counts"] == {"skip": 1, "not_dead": 1}
