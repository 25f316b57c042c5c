"""Serial keys from the option of a job type to the end of the last job: workers, people, commands and the kit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from django_jobs import clock, job, store
from django_jobs.define.registry import unregister
from django_jobs.domain.states import DeadReason
from django_jobs.exceptions import DefinitionError, KeyFormatError, PermanentError
from django_jobs.models import Job, SerialTurn
from django_jobs.operate.doctor import diagnose
from django_jobs.operate.explain import explain
from django_jobs.operate.turn_runner import TURNS, pass_turns_on
from django_jobs.operate.verify import verify
from django_jobs.testing import JobsKit
from django_jobs.worker import following
from tests.integration.worker.conftest import JOB_TYPE, Declare, claimer, run
from tests.scenes import BUDGET, failure

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def serial(declare: Declare) -> Callable[..., Any]:
    """Return what declares the test's job type with a serial key made of an argument."""

    def declared(func: Callable[..., Any] | None = None, **options: Any) -> Any:
        def nothing(account: int, n: int = 0) -> None:
            """Do nothing."""

        return declare(func or nothing, **{"serial_key": "account:{account}", **options})

    return declared


def turn() -> list[Any]:
    """Claim and run what may run now in a fresh child; returns the jobs in their order."""
    found = claimer().take(10, 0)
    if found:
        run(*found)
    return [attempt.job_id for attempt in found]


def told(row: Job) -> str:
    """Return what is said about a job."""
    return "\n".join(line for section in explain(row, using="default").sections for line in section.lines)


def test_jobs_of_a_key_run_in_order(serial: Callable[..., Any]) -> None:
    """Two accounts with three jobs each: two at a time, each account in its order, and nothing is left behind."""
    done: list[tuple[int, int]] = []

    def note(account: int, n: int) -> None:
        done.append((account, n))

    kind = serial(note, atomic=False)
    kind.enqueue_many([{"account": account, "n": n} for n in range(3) for account in (1, 2)])

    sizes = [len(turn()) for _ in range(4)]

    assert sizes == [2, 2, 2, 0]
    assert [n for account, n in done if account == 1] == [n for account, n in done if account == 2] == [0, 1, 2]
    assert not SerialTurn.objects.exists()
    assert verify(using="default").violated == ()


def test_key_of_one_job_can_be_given_and_belongs_to_its_tenant(serial: Callable[..., Any]) -> None:
    """A key given with using() is no template; those of two tenants are not the same."""
    kind = serial()
    kind.using(serial_key="{literal}").enqueue(account=1)
    kind.using(tenant="a").enqueue(account=1)
    kind.using(tenant="b").enqueue(account=1)
    kind.enqueue(account=1)
    assert list(Job.objects.order_by("id").values_list("serial_key", flat=True)) == [
        "{literal}",
        "a/account:1",
        "b/account:1",
        "account:1",
    ]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"serial_key": "account:{nothing}"}, DefinitionError),
        ({"serial_key": "x" * 201}, KeyFormatError),
        ({"serial_key": "ä"}, KeyFormatError),
        ({"serial_on_dead": "stop"}, DefinitionError),
    ],
)
def test_options_that_cannot_be_are_refused(serial: Callable[..., Any], options: Any, error: type[Exception]) -> None:
    """When the type is declared, and by name."""
    with pytest.raises(error, match="serial"):
        serial(**options)


def test_people_are_told_what_a_job_waits_for(serial: Callable[..., Any]) -> None:
    """explain names who has the turn; the doctor names dead letters that block others."""
    kind = serial()
    first, second = (kind.enqueue(account=1).id for _ in range(2))
    assert "Nobody has the turn of 'account:1'" in told(Job.objects.get(pk=second))
    (attempt,) = claimer().take(1, 0)
    assert f"Job {first} has the turn of 'account:1'; it is running." in told(Job.objects.get(pk=second))
    assert "serial-key-blocked" not in {finding.id for finding in diagnose(using="default").findings}
    store.dead_letter(attempt.claimed, failure=failure(), reason=DeadReason.PERMANENT, budget=BUDGET)
    assert "is a dead letter: replay or discard it" in told(Job.objects.get(pk=second))
    (found,) = [item for item in diagnose(using="default").findings if item.id == "serial-key-blocked"]
    assert f"account:1 (1 behind {first})" in found.text


@pytest.mark.parametrize(("on_dead", "runs"), [("block", 1), ("skip", 2)])
def test_dead_head_of_a_handler(serial: Callable[..., Any], on_dead: str, runs: int) -> None:
    """The option decides whether the next job of the key runs behind a dead letter."""
    tried = []

    def fails(account: int) -> None:
        tried.append(account)
        raise PermanentError("no")

    kind = serial(fails, serial_on_dead=on_dead)
    kind.enqueue(account=1)
    kind.enqueue(account=1)
    for _ in range(3):
        turn()
    assert len(tried) == runs


def test_turn_is_passed_on_by_maintenance_where_the_worker_did_not(
    serial: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that dies, or whose database is away, between an end and the next turn: the chore finds it."""
    kind = serial()
    _, second = (kind.enqueue(account=1).id for _ in range(2))

    def breaks(*_: object, **__: object) -> None:
        raise RuntimeError("gone")

    monkeypatch.setattr(following, "settle_turns", breaks)
    turn()
    assert Job.objects.get(pk=second).lane == "~~"
    assert TURNS.is_due("default")
    assert pass_turns_on(using="default") == 1
    assert not TURNS.is_due("default")
    assert turn() == [second]


def test_drain_does_not_wait_for_what_a_dead_letter_holds(serial: Callable[..., Any]) -> None:
    """Jobs behind a blocked head are not left to this worker: it ends."""

    def fails(account: int) -> None:
        raise PermanentError("no")

    kind = serial(fails)
    kind.enqueue(account=1)
    kind.enqueue(account=1)
    turn()
    assert claimer().take(1, 0) == []
    assert claimer().is_nothing_left()


def test_schedule_of_a_retry_keeps_the_place(serial: Callable[..., Any]) -> None:
    """The head fails for a minute; nobody of its key passes, others do; then it goes on."""
    tried: list[int] = []

    def flaky(account: int, n: int) -> None:
        tried.append(n)
        if tried.count(0) == 1 and n == 0:
            raise TimeoutError("later")

    kind = serial(flaky, atomic=False)
    kind.enqueue(account=1, n=0)
    kind.enqueue(account=1, n=1)
    kind.enqueue(account=2, n=2)
    turn()
    turn()
    with clock.override(lambda moment=clock.now() + timedelta(hours=1): moment):
        for _ in range(3):
            turn()
    assert sorted(tried[:2]) == [0, 2]
    assert tried[2:] == [0, 1]


def test_two_types_share_a_key(serial: Callable[..., Any]) -> None:
    """What makes jobs serial is the key alone: debit and credit of one account never run at once."""
    kind = serial()
    other = job(type="tests.credit", serial_key="account:{account}")(lambda account: None)
    try:
        kind.enqueue(account=1)
        other.enqueue(account=1)
        assert [len(turn()) for _ in range(3)] == [1, 1, 0]
    finally:
        unregister("tests.credit")


def test_list_shows_jobs_that_wait_for_their_turn(serial: Callable[..., Any]) -> None:
    """They are queued jobs like others."""
    serial().enqueue(account=1)
    out = StringIO()
    call_command("jobs", "list", "--state", "queued", "--type", JOB_TYPE, stdout=out)
    assert JOB_TYPE in out.getvalue()


@pytest.mark.parametrize("by", ["worker", "kit"])
def test_turn_that_a_person_frees_is_passed_on_before_anybody_rests(serial: Callable[..., Any], by: str) -> None:
    """The head is discarded: a worker that drains, and the test kit, run the next one before they say that all is done."""

    def fails(account: int, n: int) -> None:
        if n == 0:
            raise PermanentError("no")

    kind = serial(fails)
    first, second = (kind.enqueue(account=1, n=n).id for n in range(2))
    turn()
    assert store.discard(first, revision=Job.objects.get(pk=first).revision, using="default")
    if by == "kit":
        with JobsKit() as jobs:
            jobs.run_until_idle()
    else:
        assert not claimer().is_nothing_left()
        turn()
    assert Job.objects.get(pk=second).state == "succeeded"


def test_long_keys_are_stored_on_every_database(serial: Callable[..., Any]) -> None:
    """What does not fit into the column is kept apart by its digest."""
    kind = serial()
    for last in "ab":
        kind.using(tenant="t" * 64, serial_key="%" * 199 + last).enqueue(account=1)
    keys = set(Job.objects.values_list("serial_key", flat=True))
    assert {len(key) for key in keys} == {450}
    assert len(keys) == 2


def test_rows_of_one_call_keep_their_order(serial: Callable[..., Any]) -> None:
    """enqueue_many in several statements, and with a key that is taken over: the order is that of the rows."""
    kind = serial(key="evt:{n}", key_ttl=timedelta(seconds=10))
    kind.enqueue(account=1, n=0)
    turn()
    later = [clock.now() + timedelta(hours=1)]

    def ticking() -> Any:
        later[0] += timedelta(milliseconds=1)
        return later[0]

    with clock.override(ticking):
        results = kind.enqueue_many([{"account": 1, "n": n} for n in range(1200)])
    order = Job.objects.filter(state="queued").order_by("available_at", "id").values_list("pk", flat=True)
    assert list(order) == [result.id for result in results]
