"""The last members of a batch end at one moment: the batch is closed, once, without waiting for maintenance."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from django_jobs import batch, clock, faults, job
from django_jobs.define.registry import unregister
from django_jobs.enqueue.closing import close_batch
from django_jobs.models import Batch, Job
from django_jobs.operate.verify import verify
from django_jobs.worker import following
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.claiming import Claimer
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.execute import execute
from tests.crowd import TIMEOUT, meanwhile, together
from tests.databases import Server

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

CALLBACK, MEMBER = "races.callback", "races.member"


class Members:
    """Two members that run, and what they do before they end."""

    def __init__(self, callback: Any, member: Any) -> None:
        self._callback, self._member = callback, member
        self.before_end: Callable[[int], object] = lambda _: None

    def make(self) -> tuple[uuid.UUID, list[RunningAttempt]]:
        """Make a batch and claim its members."""
        made = batch.enqueue([self._member.prepare(1), self._member.prepare(2)], callback=self._callback.prepare())
        attempts = self._claimed()
        assert len(attempts) == 2
        return made.id, attempts

    def run_again(self) -> None:
        """Run members whose transaction the server undid."""
        Job.objects.filter(job_type=MEMBER, state="failed").update(state="queued", available_at=clock.now())
        Job.objects.filter(job_type=MEMBER, state="queued").update(available_at=clock.now())
        for attempt in self._claimed():
            execute(attempt)

    def _claimed(self) -> list[RunningAttempt]:
        config = WorkerConfig(
            worker_id=str(uuid.uuid4()),
            name="t",
            database="default",
            queues=("default",),
            threads=2,
            processes=1,
            grace=5,
            poll=1,
        )
        return Claimer(config).take(2, 0)


@pytest.fixture
def members() -> Iterator[Members]:
    """Declare the job types for one test."""

    def callback() -> None:
        """Do nothing."""

    def member(n: int) -> None:
        found.before_end(n)

    found = Members(job(type=CALLBACK, queue_name="later")(callback), job(type=MEMBER)(member))
    yield found
    unregister(CALLBACK)
    unregister(MEMBER)


def assert_closed_once(batch_id: uuid.UUID) -> None:
    """The batch is closed, and one job followed."""
    found = Batch.objects.get(pk=batch_id)
    assert (found.closed_at is not None, found.succeeded) == (True, 2)
    assert Job.objects.filter(job_type=CALLBACK).count() == 1
    assert verify(using="default").violated == ()


@pytest.mark.parametrize("_", range(10))
def test_two_last_members_that_commit_together_close_it_once(server: Server, members: Members, _: int) -> None:
    """Both are inside their transactions when they are let go, and then commit as they come."""
    barrier = threading.Barrier(2, timeout=TIMEOUT)
    members.before_end = lambda _: barrier.wait()
    batch_id, attempts = members.make()

    assert together(*[lambda attempt=attempt: execute(attempt) for attempt in attempts]) == [None, None]

    assert_closed_once(batch_id)


def test_two_that_saw_the_last_end_close_it_once(
    server: Server, members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen that nobody is left when they ask for the row: one closes it, the other finds it closed."""
    batch_id, attempts = members.make()
    with monkeypatch.context() as patch:
        patch.setattr(following, "close_batch", lambda *_, **__: False)
        together(*[lambda attempt=attempt: execute(attempt) for attempt in attempts])
    both = threading.Barrier(2, timeout=TIMEOUT)
    monkeypatch.setattr(faults, "plan", lambda point, _: both.wait() if point == "batch.before_close" else None)

    results = together(*[lambda: close_batch(batch_id, using="default")] * 2)

    monkeypatch.setattr(faults, "plan", None)
    assert sorted(results) == [False, True]
    assert_closed_once(batch_id)


def test_member_that_looks_while_the_other_commits_leaves_it_to_that_one(server: Server, members: Members) -> None:
    """The first sees the other one running and goes; the other one looks after its own commit and closes."""
    batch_id, (first, second) = members.make()
    paused: list[Callable[[], None]] = []
    members.before_end = lambda n: paused[0]() if paused and n == second_n else None
    second_n = _number_of(second)

    def run_second(pause: Callable[[], None]) -> None:
        paused.append(pause)
        execute(second)

    with meanwhile(run_second) as finish:
        together(lambda: execute(first))
        assert Batch.objects.get(pk=batch_id).closed_at is None
        finish()

    assert_closed_once(batch_id)


def test_member_waits_for_no_row_of_its_batch(server: Server, members: Members) -> None:
    """A completion takes no lock of the batch: while somebody holds its row, members end."""
    batch_id, attempts = members.make()

    def hold(pause: Callable[[], None]) -> None:
        with transaction.atomic():
            Batch.objects.select_for_update().get(pk=batch_id)
            pause()

    with meanwhile(hold):
        done = threading.Thread(target=lambda: together(lambda: execute(attempts[0])), daemon=True)
        done.start()
        done.join(timeout=TIMEOUT)
        assert Job.objects.get(pk=attempts[0].job_id).state == "succeeded"
    together(lambda: execute(attempts[1]))

    assert_closed_once(batch_id)


@pytest.fixture(params=["repeatable read", "serializable"])
def stricter(request: pytest.FixtureRequest, server: Server) -> Iterator[None]:
    """Begin each new session of this database in a stricter isolation level."""
    name = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        cursor.execute(f"""ALTER DATABASE "{name}" SET default_transaction_isolation = '{request.param}'""")
    connection.close()
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f'ALTER DATABASE "{name}" RESET default_transaction_isolation')
        connection.close()


def test_stricter_isolation_hides_no_last_end(stricter: None, members: Members) -> None:
    """Whatever the project's default is, who closes sees what was committed before the lock."""
    batch_id, attempts = members.make()
    assert together(*[lambda attempt=attempt: execute(attempt) for attempt in attempts]) == [None, None]
    members.run_again()  # where the server refused one of two that met, it is tried once more

    assert_closed_once(batch_id)


def _number_of(attempt: RunningAttempt) -> int:
    number: int = json.loads(attempt.claimed.arguments or "{}")["n"]
    return number
