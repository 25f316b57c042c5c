"""Schedules under attack: code that raises, hangs or leaves things behind, other releases, clocks, odd names."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DataError, OperationalError, ProgrammingError, connection, transaction

from django_jobs import Every, job
from django_jobs.define import registry
from django_jobs.define import schedules as declared
from django_jobs.domain.ids import uuid7
from django_jobs.exceptions import ActionChangedError, DefinitionError
from django_jobs.models import Job, Schedule, ScheduleTick
from django_jobs.operate import schedule_arguments
from django_jobs.operate.action import Operator
from django_jobs.operate.prune import prune
from django_jobs.operate.run_schedule import RunSchedule
from django_jobs.operate.schedule_runner import PATIENCE, SCHEDULES, Looks, announce_schedules
from django_jobs.operate.verify import verify
from tests.integration.commands.test_jobs_command import jobs
from tests.integration.schedules.conftest import START, Hands, nothing, turn

pytestmark = pytest.mark.django_db

Declare = Callable[..., Any]
MINUTELY = Every(timedelta(minutes=1))
ANN = Operator(actor="ann", owner="shop", reason="the report is needed now")


def needs(order_id: int) -> None:
    """Take what no schedule knows by itself."""


def raises(error: BaseException) -> Callable[[datetime], Any]:
    """Make arguments= that raise."""

    def arguments(tick: datetime) -> Any:
        raise error

    return arguments


def outcomes(name: str) -> list[str]:
    """Return what came of the ticks of a schedule, oldest first."""
    return list(ScheduleTick.objects.filter(schedule_name=name).order_by("tick").values_list("outcome", flat=True))


@pytest.mark.parametrize("error", [ProgrammingError("no such table"), SystemExit(1), ValueError("\x00 and \ud800")])
def test_error_of_any_kind_ends_the_tick_and_no_other_schedule_waits(
    scheduled: Declare, hands: Hands, error: BaseException
) -> None:
    """A wrong statement, a call of exit, a text that no database stores: refused at once, and the others go on."""
    scheduled(MINUTELY, needs, type="tests.a_bad", arguments=raises(error))
    scheduled(MINUTELY, type="tests.b_good")
    hands.move(minutes=1)
    turn()
    assert (outcomes("tests.a_bad"), outcomes("tests.b_good")) == (["refused"], ["enqueued"])


def test_database_that_arguments_ask_may_be_away_for_a_while(scheduled: Declare, hands: Hands) -> None:
    """The tick stays due, others are served meanwhile; after five minutes it is refused."""
    one = scheduled(Every(timedelta(hours=1)), needs, arguments=raises(OperationalError("the server is away")))
    scheduled(Every(timedelta(hours=1)), type="tests.other")
    hands.now = datetime(2026, 3, 1, 13, 0, 0, tzinfo=UTC)
    assert turn() == 1.0
    assert (outcomes(one.name), outcomes("tests.other")) == ([], ["enqueued"])
    hands.move(seconds=PATIENCE.total_seconds())
    turn()
    assert outcomes(one.name) == ["refused"]


def test_arguments_that_never_return_cost_their_schedule_the_tick(
    scheduled: Declare, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused, is not asked again while it hangs, and others are served."""
    monkeypatch.setattr(schedule_arguments.ask, "__kwdefaults__", {"within": 0.05})
    free, calls = threading.Event(), []

    def hang(tick: datetime) -> dict[str, int]:
        calls.append(tick)
        free.wait()
        return {"order_id": 1}

    one = scheduled(MINUTELY, needs, type="tests.a_bad", arguments=hang)
    scheduled(MINUTELY, type="tests.b_good")
    for _ in range(2):
        hands.move(minutes=1)
        turn()
    free.set()
    schedule_arguments._asked[one.name].join()
    hands.move(minutes=1)
    turn()

    assert len(calls) == 2
    assert outcomes(one.name) == ["refused", "refused", "enqueued"]
    assert outcomes("tests.b_good") == ["enqueued"] * 3
    assert "has not returned yet" in ScheduleTick.objects.filter(schedule_name=one.name).order_by("tick")[1].message


def test_project_code_runs_in_no_transaction_of_the_package(scheduled: Declare, hands: Hands) -> None:
    """Nor does what it leaves open reach the package's own connection."""
    seen: list[bool] = []

    def arguments(tick: datetime) -> dict[str, int]:
        seen.append(connection.in_atomic_block)
        transaction.set_autocommit(False)
        return {"order_id": 1}

    scheduled(MINUTELY, needs, arguments=arguments)
    hands.move(minutes=1)
    turn()
    assert (seen, Job.objects.count()) == ([False], 1)


def test_number_that_is_none_is_refused(scheduled: Declare, hands: Hands) -> None:
    """NaN is no JSON."""
    one = scheduled(MINUTELY, needs, arguments=lambda tick: {"order_id": float("nan")})
    hands.move(minutes=1)
    turn()
    assert (outcomes(one.name), Job.objects.count()) == (["refused"], 0)


@pytest.mark.parametrize("name", ["a{b}c", "{", "100%: {tick!r}", "x" * 200, "%s", "'; DROP TABLE x; --"])
def test_odd_names_are_names(scheduled: Declare, hands: Hands, name: str) -> None:
    """Served, and run by hand, whatever printable signs they have and however long they are."""
    scheduled(MINUTELY, name=name)
    hands.move(minutes=1)
    turn()
    for _ in range(2):
        hands.move(seconds=1)
        decision = RunSchedule(name, using="default")
        decision.submit(ANN, digest=decision.plan().digest)
    assert (outcomes(name), Job.objects.count()) == (["enqueued"] * 3, 3)


class Broken(Every):
    """A rule that fails when somebody asks for its ticks."""

    def after(self, moment: datetime) -> Any:
        """Fail, as what a database refuses does."""
        raise DataError(self.text)


def test_schedule_that_cannot_be_announced_stops_no_other(
    scheduled: Declare, hands: Hands, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker announces and serves the others; it says which one fails, and announces that one as soon as it can."""
    worker, bad = uuid7(), Broken(timedelta(minutes=1))
    for name, rule in (("tests.a_bad", bad), ("tests.b_good", MINUTELY)):
        declared.schedule(job(type=name)(nothing), rule)

    assert SCHEDULES.turn(worker, "default") == 5.0
    assert [row.name for row in Schedule.objects.all()] == ["tests.b_good"]
    assert "The schedule tests.a_bad could not be announced" in caplog.text
    hands.move(minutes=1)
    SCHEDULES.turn(worker, "default")
    assert outcomes("tests.b_good") == ["enqueued"]
    declared.forget_schedule("tests.a_bad")
    declared.schedule(registry.get("tests.a_bad"), MINUTELY)
    SCHEDULES.turn(worker, "default")
    assert Schedule.objects.count() == 2


def test_verb_says_what_could_not_be_announced(scheduled: Declare) -> None:
    """Before a deploy: by its text, and by its exit code for programs."""
    declared.schedule(job(type="tests.a_bad")(nothing), Broken(timedelta(minutes=1)))
    scheduled(MINUTELY)

    text, code = jobs("schedules", "--announce")
    assert ("tests.scheduled" in text, "Could not be announced, the log says why: tests.a_bad." in text) == (True, True)
    assert (code, jobs("schedules", "--announce", "--json")[1]) == (1, 1)


def test_second_schedule_of_a_name_is_refused(scheduled: Declare) -> None:
    """Two rules for one job type without names: none replaces the other in silence; the same words twice are one."""
    handler = job(type="tests.twice")(nothing)
    declared.schedule(handler, "0 6 * * *")
    declared.schedule(handler, "0 6 * * *")
    with pytest.raises(DefinitionError, match="is declared twice"):
        declared.schedule(handler, "0 18 * * *")


def test_offset_of_a_fraction_is_refused() -> None:
    """Ticks are whole seconds, so that a run by hand can never take the place of one."""
    with pytest.raises(DefinitionError, match="whole seconds"):
        Every(timedelta(minutes=1), offset=timedelta(milliseconds=5))


def test_run_by_hand_takes_no_ticks_place(scheduled: Declare, hands: Hands) -> None:
    """At the very moment of a tick, by a clock that shows whole seconds."""
    one = scheduled(MINUTELY)
    hands.move(seconds=30)
    decision = RunSchedule(one.name, using="default")
    decision.submit(ANN, digest=decision.plan().digest)
    turn()
    assert (outcomes(one.name), Job.objects.count()) == (["enqueued"] * 2, 2)


def test_run_by_hand_twice_with_one_digest_runs_once(scheduled: Declare, hands: Hands) -> None:
    """The second one is told that something changed."""
    decision = RunSchedule(scheduled(MINUTELY).name, using="default")
    digest = decision.plan().digest
    decision.submit(ANN, digest=digest)
    hands.move(seconds=1)
    with pytest.raises(ActionChangedError):
        decision.submit(ANN, digest=digest)
    assert Job.objects.count() == 1


def test_run_by_hand_says_what_the_code_raised(scheduled: Declare, hands: Hands) -> None:
    """It is an answer to a person, not a page of an error; nothing is recorded."""
    one = scheduled(MINUTELY, needs, arguments=raises(ValueError("no orders")))
    decision = RunSchedule(one.name, using="default")
    with pytest.raises(ActionChangedError, match="ValueError: no orders"):
        decision.submit(ANN, digest=decision.plan().digest)
    assert not ScheduleTick.objects.exists()


def test_schedule_that_others_should_serve_makes_no_loop_hot(scheduled: Declare, hands: Hands) -> None:
    """A due tick that this code leaves alone is looked at with the others, not at once again."""
    old = scheduled(MINUTELY)
    scheduled(Every(timedelta(minutes=2)))
    declared._schedules[old.name] = old
    hands.move(minutes=2)
    assert turn() == 5.0


def test_release_that_has_gone_leaves_no_schedule_behind(scheduled: Declare, hands: Hands) -> None:
    """A trial of a new release ended: half a minute after a tick of its rule the old workers serve again, that tick too."""
    old = scheduled(MINUTELY)
    scheduled(Every(timedelta(minutes=2)))
    declared._schedules[old.name] = old
    looks = Looks()
    hands.move(seconds=90)
    looks.serve(using="default")
    hands.move(seconds=29)
    looks.serve(using="default")
    assert outcomes(old.name) == []
    hands.move(seconds=1)
    looks.serve(using="default")
    assert Schedule.objects.get().rule == old.text
    assert looks.serve(using="default") == 5.0
    assert [f"{row.tick:%H:%M:%S}" for row in ScheduleTick.objects.all()] == ["12:02:00"]


def test_deploy_on_a_tick_loses_none_r57(scheduled: Declare, hands: Hands) -> None:
    """R57: a new rule that has the tick too is announced before anybody has served it; it runs, once."""
    scheduled(MINUTELY)
    hands.now = START + timedelta(seconds=31)
    scheduled(Every(timedelta(seconds=30)))
    turn()
    turn()
    assert [f"{row.tick:%H:%M:%S}" for row in ScheduleTick.objects.all()] == ["12:01:00"]


def test_clock_that_is_set_back_repeats_nothing(scheduled: Declare, hands: Hands) -> None:
    """Neither a look, nor a changed rule, nor workers that start again go behind what is settled."""
    scheduled(MINUTELY)
    hands.move(minutes=5)
    turn()
    before = Schedule.objects.get().settled_at
    hands.move(minutes=-4)
    turn()
    scheduled(Every(timedelta(seconds=30)))
    announce_schedules(using="default")
    turn()
    assert (ScheduleTick.objects.count(), Schedule.objects.get().settled_at) == (1, before)


def test_pruned_ticks_are_not_run_again(scheduled: Declare, hands: Hands) -> None:
    """What is settled guards a tick when its row has gone; the newest rows, and what is not settled, stay."""
    hands.now = datetime.now(UTC).replace(second=30, microsecond=0)  # ids are made by the real clock
    one = scheduled(MINUTELY)
    for _ in range(3):
        hands.move(minutes=1)
        turn()
    hands.move(days=32)
    assert prune(using="default").ticks == 3
    assert outcomes(one.name) == []
    hands.move(days=-32)
    turn()
    announce_schedules(using="default")
    turn()
    assert (outcomes(one.name), Job.objects.count()) == ([], 3)
    hands.move(minutes=1)
    turn()
    Schedule.objects.update(settled_at=START)
    hands.move(days=32)
    assert prune(using="default").ticks == 0
    assert {item.invariant.name for item in verify(using="default").violated} == {"T2"}


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_ticks_are_served_whatever_isolation_a_session_has(scheduled: Declare, hands: Hands) -> None:
    """Where sessions begin in a stricter isolation level, a schedule is announced and served like anywhere else."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    try:
        one = scheduled(MINUTELY)
        hands.move(minutes=1)
        turn()
        assert outcomes(one.name) == ["enqueued"]
    finally:
        connection.close()
