"""Many coroutines on one event loop: they wait beside each other, and what each of them does and leaves is its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections
from django.utils import translation

from django_jobs import JobContext, clock, telemetry
from django_jobs.models import Attempt, Job
from django_jobs.worker import attempt as attempts
from django_jobs.worker import blocked
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.bench import Bench
from django_jobs.worker.execute import abandon, execute
from django_jobs.worker.pool import Pool
from django_jobs.worker.shutdown import Ending
from django_jobs.worker.wake import Wake
from tests.integration.worker.conftest import Declare, claimer, write

pytestmark = pytest.mark.django_db(transaction=True)

Table = Callable[[], list[int]]
WAIT = 30.0  # seconds


class Meeting:
    """Where coroutines of one loop wait for each other."""

    def __init__(self, many: int) -> None:
        self.loops: set[asyncio.AbstractEventLoop] = set()
        self._many, self._came = many, 0
        self._all: asyncio.Event | None = None

    async def reach(self) -> None:
        """Wait until all are there."""
        self.loops.add(asyncio.get_running_loop())
        self._all = self._all or asyncio.Event()
        self._came += 1
        if self._came == self._many:
            self._all.set()
        async with asyncio.timeout(WAIT):
            await self._all.wait()


@dataclass
class Crew:
    """A pool of one thread, with places for coroutines."""

    places: int
    ended: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    pool: Pool = field(init=False)

    def __post_init__(self) -> None:
        self.pool = Pool(1, execute, abandon, self.ended.release, coroutines=self.places)

    def begin(self, many: int) -> list[RunningAttempt]:
        """Claim jobs and hand them over."""
        found = [one for _ in range(many) for one in claimer().take(1, 0)]
        assert len(found) == many
        for one in found:
            self.pool.submit(one)
        return found

    def finish(self, many: int) -> None:
        """Wait until so many have ended."""
        for _ in range(many):
            assert self.ended.acquire(timeout=WAIT), "an attempt ended"

    def run(self, many: int) -> None:
        """Claim and run so many at once."""
        self.begin(many)
        self.finish(many)


@pytest.fixture
def crew(transactional_db: None) -> Iterator[Callable[[int], Crew]]:
    """Make pools that are stopped at the end."""
    made: list[Crew] = []

    def make(places: int) -> Crew:
        made.append(Crew(places))
        return made[-1]

    yield make
    for one in made:
        one.pool.stop(seconds=10)


def declare_each(declare: Declare, work: Callable[..., Awaitable[Any]], **options: Any) -> Any:
    """Declare a coroutine with a context and a number."""

    async def handler(context: JobContext, n: int) -> Any:
        return await work(context, n)

    return declare(handler, takes_context=True, **options)


def enqueue(job: Any, many: int) -> None:
    """Enqueue the numbers from 0 on."""
    for n in range(many):
        job.enqueue(n=n)


def outcomes() -> dict[int, str]:
    """Return how the attempts ended, by the number of their job."""
    rows = Attempt.objects.select_related("job__payload").order_by("pk")
    return {int(row.job.payload.arguments.split(":")[1].strip(" }")): row.outcome for row in rows}


@pytest.mark.parametrize(("places", "many"), [(20, 20), (3, 4)], ids=["beside the thread", "and in it"])
def test_coroutines_wait_beside_each_other_on_one_loop(
    declare: Declare, crew: Callable[[int], Crew], places: int, many: int
) -> None:
    """As many as there are places, and one more in the thread, reach a point for which each waits for all."""
    meeting = Meeting(many)

    async def work(context: JobContext, n: int) -> None:
        await meeting.reach()

    enqueue(declare_each(declare, work), many)

    crew(places).run(many)

    assert set(outcomes().values()) == {"succeeded"}
    assert len(meeting.loops) == 1


def test_handler_that_is_no_coroutine_takes_the_thread(declare: Declare, crew: Callable[[int], Crew]) -> None:
    """Places for coroutines let no plain handler run beside another one."""
    go, job = threading.Event(), declare(lambda: go.wait(WAIT))
    job.enqueue()
    one = crew(5)
    one.begin(1)

    assert one.pool.free == 0

    go.set()
    one.finish(1)
    assert one.pool.free == 1


def test_coroutine_leaves_the_thread_to_others(declare: Declare, crew: Callable[[int], Crew]) -> None:
    """While there is a place beside it, a coroutine that waits keeps nothing from being claimed."""
    meeting = Meeting(2)

    async def work(context: JobContext, n: int) -> None:
        await meeting.reach()

    enqueue(declare_each(declare, work), 2)
    one = crew(1)

    one.begin(1)
    assert one.pool.free == 1
    one.begin(1)
    assert one.pool.free == 0

    one.finish(2)
    assert one.pool.free == 1


def test_transactions_are_not_shared(declare: Declare, crew: Callable[[int], Crew], table: Table) -> None:
    """Of coroutines whose completions are open at the same time, one fails and takes back its own rows alone."""
    meeting = Meeting(2)

    async def work(context: JobContext, n: int) -> None:
        async with context.acomplete():
            if connection.vendor == "postgresql":  # SQLite lets one write at a time
                await sync_to_async(write)(n)
            await meeting.reach() if connection.vendor == "postgresql" else None
            await sync_to_async(write)(10 + n)
            if n == 0:
                raise ValueError("no")

    enqueue(declare_each(declare, work), 2)

    crew(2).run(2)

    assert outcomes() == {0: "failed", 1: "succeeded"}
    assert table() == ([1, 11] if connection.vendor == "postgresql" else [11])


def test_each_has_its_thread_and_its_language(declare: Declare, crew: Callable[[int], Crew]) -> None:
    """What one activates, and in which thread it asks the database, is not another one's."""
    meeting, seen = Meeting(2), dict[int, tuple[set[int], Any, Any]]()

    async def work(context: JobContext, n: int) -> None:
        translation.activate(["de", "fr"][n])
        threads = {await sync_to_async(threading.get_ident)()}
        await meeting.reach()
        threads |= set(await asyncio.gather(*(sync_to_async(threading.get_ident)() for _ in range(3))))
        seen[n] = threads, translation.get_language(), await sync_to_async(translation.get_language)()

    enqueue(declare_each(declare, work), 2)

    crew(2).run(2)

    assert [seen[n][1:] for n in (0, 1)] == [("de", "de"), ("fr", "fr")]
    assert [len(seen[n][0]) for n in (0, 1)] == [1, 1]
    assert not seen[0][0] & seen[1][0]


def test_what_one_leaves_ends_with_it(declare: Declare, crew: Callable[[int], Crew]) -> None:
    """A task, an open generator and a thread of one attempt end before its end is recorded; the other's task goes on."""
    first_is_over, thread_is_over, ends = threading.Event(), threading.Event(), list[str]()
    kept: list[Any] = []

    async def forever(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(f"task of {name}")

    async def generate() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            ends.append(f"generator, {await sync_to_async(Attempt.objects.filter(outcome='succeeded').count)()} ended")

    def linger() -> None:
        ends.append(f"thread, {'after' if first_is_over.wait(0.5) else 'before'} the end")
        thread_is_over.set()

    async def work(context: JobContext, n: int) -> None:
        kept.append(asyncio.create_task(forever(str(n))))
        await asyncio.sleep(0)
        if n == 0:
            kept.append(generate())
            await anext(aiter(kept[-1]))
            kept.append(asyncio.create_task(asyncio.to_thread(linger)))
            await asyncio.sleep(0)
        else:
            await asyncio.to_thread(thread_is_over.wait, WAIT)
            await asyncio.to_thread(first_is_over.wait, WAIT)
            ends.append("the other")

    enqueue(declare_each(declare, work), 2)
    one = crew(2)
    one.begin(2)
    one.finish(1)
    first_is_over.set()
    one.finish(1)

    assert sorted(ends[:3]) == ["generator, 0 ended", "task of 0", "thread, before the end"]
    assert ends[3:] == ["the other", "task of 1"]
    assert set(outcomes().values()) == {"succeeded"}


def test_end_of_the_interpreter_in_a_task_ends_its_own_attempt(declare: Declare, crew: Callable[[int], Crew]) -> None:
    """SystemExit in a task of one is the error of that one; the loop goes on for the other."""
    left = threading.Event()

    async def leave() -> None:
        raise SystemExit(3)

    async def work(context: JobContext, n: int) -> None:
        if n == 0:
            await asyncio.gather(leave(), asyncio.Event().wait())
        await asyncio.to_thread(left.wait, WAIT)
        await asyncio.sleep(0)

    enqueue(declare_each(declare, work), 2)
    one = crew(2)
    one.begin(2)
    one.finish(1)
    left.set()
    one.finish(1)

    assert outcomes() == {0: "failed", 1: "succeeded"}
    assert Attempt.objects.get(outcome="failed").error_type == "SystemExit"


@pytest.mark.parametrize("gives_up", [True, False])
def test_coroutine_that_ran_past_its_lease_is_cancelled(
    declare: Declare, crew: Callable[[int], Crew], monkeypatch: pytest.MonkeyPatch, gives_up: bool
) -> None:
    """One that gives up costs its neighbours nothing; one that does not costs the process, as code in a thread does."""
    monkeypatch.setattr(attempts, "LEAVE", WAIT if gives_up else 0.0)
    monkeypatch.setattr(Bench, "LOOK_EVERY", 0.01)
    may_end, began = threading.Event(), threading.Semaphore(0)

    async def work(context: JobContext, n: int) -> None:
        try:
            began.release()
            await asyncio.Event().wait()
        finally:
            if not gives_up:
                await asyncio.shield(asyncio.to_thread(may_end.wait, WAIT))

    enqueue(declare_each(declare, work), 1)
    one = crew(1)
    one.begin(1)
    assert began.acquire(timeout=WAIT)
    ending = Ending(one.pool, Wake(), grace=5)
    for seconds in (66, 1.5, 1):  # of 60 s for the budget and 10 s for the end; not at once, as a frozen process would
        clock.skip(seconds)
        ending.end_overdue()

    if gives_up:
        one.finish(1)
    ending.end_overdue()

    assert ending.recycling is not gives_up
    may_end.set()
    if not gives_up:
        one.finish(1)
    assert Attempt.objects.get().outcome == "failed"
    assert "past its lease" in Attempt.objects.get().message


@pytest.mark.postgres
@pytest.mark.parametrize("change", ["", "SET search_path = public, pg_catalog", "SELECT pg_advisory_lock(7)"])
def test_coroutine_that_waits_holds_no_connection(
    declare: Declare, crew: Callable[[int], Crew], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The server gets it back, unless something in the session would be missed; then the next query finds it there."""
    monkeypatch.setattr(Bench, "LOOK_EVERY", 0.01)
    looks, seen = threading.Semaphore(0), list[Any]()
    look = blocked.Blocked.look
    monkeypatch.setattr(blocked.Blocked, "look", lambda self: (look(self), looks.release()))

    def session() -> Any:
        with connection.cursor() as cursor:
            cursor.execute(change or "SELECT 1")
            return connection.connection

    def search_path() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SHOW search_path")
            return str(cursor.fetchone()[0])

    async def work(context: JobContext, n: int) -> None:
        raw = await sync_to_async(session)()
        for _ in range(3):  # of two looks, the first has come to its end
            await asyncio.to_thread(looks.acquire, timeout=WAIT)
        seen.append(raw.closed)
        seen.append(await sync_to_async(search_path)())
        async with context.acomplete():
            await asyncio.to_thread(looks.acquire, timeout=WAIT)
            seen.append(await sync_to_async(lambda: connection.in_atomic_block)())

    enqueue(declare_each(declare, work), 1)

    crew(1).run(1)

    assert seen == [not change, "public, pg_catalog" if "search_path" in change else '"$user", public', True]
    assert outcomes() == {0: "succeeded"}


def test_coroutine_that_blocks_all_others_is_the_one_that_is_named(
    declare: Declare, crew: Callable[[int], Crew], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks, the job whose task keeps the loop from turning is told, once."""
    monkeypatch.setattr(blocked, "BLOCKED_AFTER", 0.05)
    monkeypatch.setattr(Bench, "LOOK_EVERY", 0.01)
    meeting, told, jobs = Meeting(3), threading.Event(), list[Any]()

    def hear(event: str, fields: dict[str, Any]) -> None:
        if event == "coroutine.blocked":
            jobs.append(fields["job_id"])
            told.set()

    async def block() -> None:
        told.wait(WAIT)

    async def work(context: JobContext, n: int) -> None:
        await meeting.reach()
        if n == 1:
            await asyncio.create_task(block())

    telemetry.subscribe(hear)
    enqueue(declare_each(declare, work), 3)

    crew(3).run(3)

    culprit = Job.objects.get(payload__arguments__contains="1")
    assert jobs == [culprit.pk]


def test_threads_of_coroutines_keep_no_connection(declare: Declare, crew: Callable[[int], Crew]) -> None:
    """What a call in another thread asked of the database is over with that call, also where threads serve others."""
    seen: list[Any] = []

    def ask() -> None:
        Job.objects.count()
        seen.append(connections["default"])

    async def work(context: JobContext, n: int) -> None:
        await asyncio.to_thread(ask)

    enqueue(declare_each(declare, work), 1)

    crew(1).run(1)

    assert [one.connection for one in seen] == [None]


def test_soft_time_out_reaches_its_own_coroutine(
    declare: Declare, crew: Callable[[int], Crew], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one whose budget is over is told where it awaits; the other one on the loop is not."""
    meeting, go = Meeting(2), threading.Event()

    async def work(context: JobContext, n: int) -> None:
        await meeting.reach()
        if n == 0:
            context._attempt.renewed_at -= 61  # type: ignore[attr-defined]
            await asyncio.Event().wait()
        await asyncio.to_thread(go.wait, WAIT)

    enqueue(declare_each(declare, work, soft_timeout=True, budget=timedelta(seconds=60)), 2)
    one = crew(2)
    one.begin(2)
    one.finish(1)
    go.set()
    one.finish(1)

    assert outcomes() == {0: "failed", 1: "succeeded"}
    assert Attempt.objects.get(outcome="failed").error_type == "django_jobs.exceptions.SoftTimeoutError"
