"""What a child claims beside what it runs, and that a job which has to run alone does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from django.db import connections

from django_jobs import clock
from django_jobs.domain.states import Alone
from django_jobs.models import Attempt, Job
from django_jobs.outbox.dispatcher import longest_delivering
from django_jobs.worker.child import Child
from django_jobs.worker.claiming import Claimer
from django_jobs.worker.company import Company
from django_jobs.worker.link import Order, Word
from django_jobs.worker.room import Seat
from tests.acceptance.workers import wait_for
from tests.factories import JobFactory
from tests.integration.worker.conftest import JOB_TYPE, Declare, claimer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What the test's handler waits for."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def child(declare: Declare, gate: threading.Event) -> Iterator[Callable[[], Child]]:
    """Make the loop of a child with three threads whose handler waits at the gate; its rounds are made by hand."""
    made: list[Child] = []

    def make() -> Child:
        declare(lambda: gate.wait(20), atomic=False)
        made.append(Child(replace(claimer().config, threads=3)))
        return made[-1]

    yield make
    gate.set()
    for one in made:
        one.pool.stop(seconds=10)
    connections.close_all()


def suspect() -> Job:
    """Store a due job that was lost once and has to run alone."""
    return JobFactory(job_type=JOB_TYPE, suspect=True)


def test_suspect_gets_no_company(child: Callable[[], Child], gate: threading.Event) -> None:
    """While a job runs alone its child claims nothing, although threads are free; afterwards it goes on."""
    loop = child()
    lonely = suspect()
    assert loop._turn() == 1
    JobFactory(job_type=JOB_TYPE)

    assert loop._turn() == 0
    gate.set()
    wait_for(lambda: not loop.pool.running, what="the end of the suspect")

    assert loop._turn() == 1
    assert Attempt.objects.get(job_id=lonely.pk).alone == "worker", "one child is the whole worker"


def test_child_makes_room_for_a_suspect(child: Callable[[], Child], gate: threading.Event) -> None:
    """A child that runs something claims nothing more while a suspect waits, and the suspect comes first then."""
    loop = child()
    JobFactory(job_type=JOB_TYPE)
    assert loop._turn() == 1
    waiting = suspect()
    JobFactory(job_type=JOB_TYPE)
    loop.claimer._looked_for_suspects = float("-inf")

    assert loop._turn() == 0
    gate.set()
    wait_for(lambda: not loop.pool.running, what="an empty child")

    assert loop._turn() == 1
    assert Job.objects.get(pk=waiting.pk).fence == 1


def test_other_children_go_on_beside_a_suspect(declare: Declare) -> None:
    """Only the first child of a worker makes room; the others claim what is due."""
    declare(lambda: None)
    suspect()
    JobFactory(job_type=JOB_TYPE)
    others = Claimer(replace(claimer().config, processes=2, slot=1))

    found = others.take(2, 1)

    assert [attempt.claimed.isolation for attempt in found] == [""]


def test_suspect_waits_for_what_is_delivered_in_its_child(child: Callable[[], Child], gate: threading.Event) -> None:
    """No delivery is under way when it starts, and none begins while it runs; jobs without suspicion go on."""
    loop = child()
    JobFactory(job_type=JOB_TYPE)
    with loop.company.delivering(suspect=False):
        assert loop._turn() == 1, "a job and a delivery run beside each other"
        gate.set()
        wait_for(lambda: not loop.pool.running, what="an empty child")
        gate.clear()
        lonely = suspect()
        loop.claimer._looked_for_suspects = float("-inf")
        assert loop._turn() == 0
    with loop.company.delivering(suspect=False) as alone:
        assert alone is None, "the suspect comes first"

    assert loop._turn() == 1
    assert Attempt.objects.get(job_id=lonely.pk).alone
    with loop.company.delivering(suspect=False) as alone:
        assert alone is None
    gate.set()
    wait_for(lambda: not loop.pool.running, what="an empty child")
    loop._turn()
    with loop.company.delivering(suspect=False) as alone:
        assert alone is Alone.NO


def test_jobs_wait_while_a_suspected_delivery_is_alone(child: Callable[[], Child], gate: threading.Event) -> None:
    """Nothing is claimed beside it, and jobs that run hold it back until they have ended; then it comes first."""
    loop = child()
    JobFactory(job_type=JOB_TYPE)
    assert loop._turn() == 1
    with loop.company.delivering(suspect=True) as alone:
        assert alone is None
    JobFactory(job_type=JOB_TYPE)
    assert loop._turn() == 0, "room is made"
    gate.set()
    wait_for(lambda: not loop.pool.running, what="an empty child")
    with loop.company.delivering(suspect=True) as alone:
        assert alone is Alone.WORKER
        assert loop._turn() == 0
    assert loop._turn() == 1


@pytest.mark.parametrize("of_a_suspect", [True, False])
def test_publisher_that_hangs_stops_no_job(
    child: Callable[[], Child], monkeypatch: pytest.MonkeyPatch, of_a_suspect: bool
) -> None:
    """Its delivery is taken back when the lease is over; the child claims again, but nothing that bears no company."""
    loop = child()
    with loop.company.delivering(suspect=of_a_suspect):
        lonely, other = suspect(), JobFactory(job_type=JOB_TYPE)
        loop.claimer._looked_for_suspects = float("-inf")
        assert loop._turn() == 0, "it may still return"
        since = clock.boot_seconds
        monkeypatch.setattr(clock, "boot_seconds", lambda: since() + longest_delivering(of_a_suspect))

        assert loop._turn() == 1

        assert Job.objects.get(pk=other.pk).state == "running"
        assert Job.objects.get(pk=lonely.pk).state == "queued"


def test_deliveries_go_out_between_two_suspects(child: Callable[[], Child], gate: threading.Event) -> None:
    """A row of jobs that run alone, one after another, does not keep every event back until the last one ended."""
    loop = child()
    suspect(), suspect()
    gate.set()
    for begun in (1, 2):
        loop.claimer._looked_for_suspects = float("-inf")
        assert loop._turn() == 1
        with loop.company.delivering(suspect=False) as alone:
            assert alone is None
        wait_for(lambda: not loop.pool.running, what="an empty child")
        assert loop._turn() == 0, "first it is the turn of the deliveries"
        with loop.company.delivering(suspect=False) as alone:
            assert alone is Alone.NO
        assert Attempt.objects.count() == begun


def test_child_that_is_held_is_quiet_when_its_deliveries_are(declare: Declare) -> None:
    """What runs alone on its worker has no deliveries beside it in other children either."""
    declare(lambda: None)
    told: list[Word] = []
    mine = seat(told)
    company = Company(
        is_busy=lambda: False, wake_jobs=lambda: None, makes_room=True, alone=Alone.CHILD, longest=lambda _: 60.0
    )
    claiming = Claimer(replace(claimer().config, processes=2), mine, company)
    mine.follow(Order.HOLD, 1)
    with company.delivering(suspect=False):
        assert claiming.take(2, 0) == []
        assert Word.QUIET not in told

    claiming.take(2, 0)

    assert Word.QUIET in told
    with company.delivering(suspect=False) as alone:
        assert alone is None


def seat(told: list[Word]) -> Seat:
    """Return a child's seat whose words are kept."""
    return Seat(lambda word, _: told.append(word) is None)


def group_suspect() -> Job:
    """Store a due job that has to run alone on its worker."""
    return JobFactory(job_type=JOB_TYPE, group_suspect=True)


def test_job_for_the_whole_worker_waits_for_the_grant(declare: Declare) -> None:
    """A child of several asks, goes on until it is held, is quiet then, and claims the job alone when it may."""
    declare(lambda: None)
    lonely = group_suspect()
    JobFactory(job_type=JOB_TYPE)
    told: list[Word] = []
    mine = seat(told)
    claiming = Claimer(replace(claimer().config, processes=2), mine)

    assert [attempt.job_id != lonely.pk for attempt in claiming.take(2, 0)] == [True]
    assert told == [Word.WANT]
    mine.follow(Order.HOLD, 1)
    assert claiming.take(2, 1) == []
    assert told == [Word.WANT], "it still runs something"
    assert claiming.take(2, 0) == []
    assert told[-1] is Word.QUIET
    mine.follow(Order.GRANT, 1)
    (attempt,) = claiming.take(2, 0)
    assert (attempt.job_id, attempt.claimed.alone) == (lonely.pk, "worker")
    claiming.take(2, 0)
    assert told[-1] is Word.DONE


def test_room_is_given_back_when_the_job_ran_elsewhere(declare: Declare) -> None:
    """A child that was held, or granted the worker, for a job that is gone does not keep it."""
    declare(lambda: None)
    for orders in ([Order.HOLD], [Order.HOLD, Order.GRANT]):
        told: list[Word] = []
        mine = seat(told)
        claiming = Claimer(replace(claimer().config, processes=2), mine)
        for order in orders:
            mine.follow(order, 1)
        JobFactory(job_type=JOB_TYPE)

        assert claiming.take(2, 0) == []
        assert told[-1] is Word.DONE
        mine.follow(Order.RESUME, 1)
        assert len(claiming.take(1, 0)) == 1


def test_child_that_cannot_promise_the_worker_leaves_the_job(declare: Declare) -> None:
    """A job that needs the whole worker is never claimed as one that is alone in its child only."""
    declare(lambda: None)
    waiting = group_suspect()
    claiming = Claimer(replace(claimer().config, processes=2))
    claiming._suspect_waits = Alone.CHILD

    assert claiming._take_suspect(Alone.CHILD, 0) is None
    waiting.refresh_from_db()
    assert waiting.state == "queued"


def test_suspect_of_an_unknown_type_holds_nobody(declare: Declare) -> None:
    """A job that this code cannot run reserves no room in it."""
    declare(lambda: None)
    JobFactory(job_type="gone.away", suspect=True)
    JobFactory(job_type=JOB_TYPE)

    assert len(claimer().take(2, 1)) == 1


def test_claim_takes_no_more_than_there_is_room_for(declare: Declare) -> None:
    """What cannot start now stays for others: there is no prefetch."""
    declare(lambda: None)
    for _ in range(5):
        JobFactory(job_type=JOB_TYPE)

    assert len(claimer().take(2, 0)) == 2
    assert Job.objects.filter(state="queued").count() == 3


def test_drained_means_nothing_due_now_or_later(declare: Declare) -> None:
    """A retry that is due within a second counts as waiting; a job of another code's type does not."""
    declare(lambda: None)
    JobFactory(job_type="gone.away")
    claiming = claimer()
    assert claiming.is_nothing_left()

    JobFactory(job_type=JOB_TYPE, available_at=JobFactory.build(scheduled=True).available_at)

    assert not claiming.is_nothing_left()
