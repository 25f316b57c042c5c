"""Random histories of several actors on the real database; after each step the rows are what a small model says.

First anything may happen: holders that are late, processes that die, workers that fall silent. Then nothing fails any
more, and every job must come to its end within a bounded time.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from django_jobs import RetryPolicy, clock, job, store
from django_jobs.define.registry import unregister
from django_jobs.domain.errors import ErrorRecord
from django_jobs.domain.retry import DeadLetter, after_failure, count_failure
from django_jobs.domain.states import Alone, ErrorClass
from django_jobs.exceptions import IdempotencyConflictError, LeaseLostError
from django_jobs.models import Attempt, Job
from django_jobs.operate.cancel import Cancel
from django_jobs.operate.replay import Replay
from django_jobs.operate.verify import verify
from django_jobs.store.workers import WorkerRecord, beat, register
from django_jobs.worker.rescue import take_back
from tests.databases import Server
from tests.factories_decisions import decided
from tests.model.reference import ENDED, KEY_TTL, WAITING, Reference, Work
from tests.scenes import NOON

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "model.work"
LEASE = timedelta(seconds=10)
BUDGET = timedelta(seconds=8)
SECOND = timedelta(seconds=1)
POLICY = RetryPolicy(base=SECOND, cap=SECOND)  # every wait of its own is shorter than any step of the clock
KNOWN = store.KnownType(job_type=NAME, payload_version=1, lease=LEASE, code_version="test")
WORKERS = st.sampled_from(["a", "b"])
STEPS = st.sampled_from([SECOND, LEASE, 15 * SECOND, 21 * SECOND, 31 * SECOND, KEY_TTL])
ROUNDS = 12  # in which everything must have ended that nobody disturbs


@pytest.fixture
def work() -> Iterator[Any]:
    """A job type whose handler is never called: the machine is the worker."""

    @job(type=NAME, retry=POLICY, key_ttl=KEY_TTL)
    def work(number: int) -> None:
        """Do nothing."""

    yield work
    unregister(NAME)


class Jobs(RuleBasedStateMachine):
    """Several actors; ``declared`` and ``server`` are set by the test."""

    declared: Any
    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.server.empty()
        self.now = NOON
        self.model = Reference(NOON)
        self.claims: list[store.Claimed] = []
        self.progressed = 0
        self._stack = ExitStack()
        self._stack.enter_context(clock.override(lambda: self.now))
        self.ids: dict[str, uuid.UUID] = {}
        for name in ("a", "b"):
            self._register(name)

    def _register(self, name: str) -> None:
        record = WorkerRecord(
            worker_id=uuid.uuid4(), name=name, host="host", pid=1, queues=["default"], job_types=[NAME],
            threads=2, processes=2, code_version="test", kinds=[f"{NAME} 1"],
        )  # fmt: skip
        register(record, using="default")
        self.ids[name] = record.worker_id
        self.model.beats[record.worker_id] = self.now

    @rule(key=st.sampled_from(["", "k1", "k2"]), number=st.integers(1, 2))
    def enqueue(self, key: str, number: int) -> None:
        """The key answers with its job, refuses other arguments, or makes room for a new job."""
        outcome, held = self.model.answer(key, number)
        chosen = self.declared.using(key=key) if key else self.declared
        if outcome == "conflict":
            with pytest.raises(IdempotencyConflictError) as refused:
                chosen.enqueue(number=number)
            assert refused.value.job_id == held
            return
        told = chosen.enqueue(number=number)
        assert told.outcome == outcome
        if held is None:
            self.model.add(told.id, key, number)
        else:
            assert told.id == held

    def _has(self, *states: str) -> bool:
        return any(work.state in states for work in self.model.jobs.values())

    @initialize(many=st.integers(1, 3))
    def begin(self, many: int) -> None:
        """Some jobs wait from the beginning."""
        for number in range(many):
            self.model.add(self.declared.enqueue(number=number).id, "", number)

    @precondition(lambda self: self.model.ready(alone=""))
    @rule(worker=WORKERS, child=st.integers(1, 2), room=st.integers(1, 2))
    def claim(self, worker: str, child: int, room: int) -> None:
        """What waits longest is claimed, and no suspect."""
        self._claim(worker, child, room, Alone.NO)

    @precondition(lambda self: any(work.isolation for work in self.model.jobs.values()))
    @rule(worker=WORKERS, child=st.integers(1, 2), alone=st.sampled_from([Alone.CHILD, Alone.WORKER]))
    def claim_suspect(self, worker: str, child: int, alone: Alone) -> None:
        """A suspect goes to whoever promises as much loneliness as it needs."""
        self._claim(worker, child, 1, alone)

    def _claim(self, worker: str, child: int, room: int, alone: Alone) -> None:
        expected = self.model.ready(alone=alone.value)[:room]
        request = store.ClaimRequest(
            queues=["default"], types=[KNOWN], attempt_ids=[uuid.uuid4() for _ in range(room)],
            worker_id=self.ids[worker], worker_child=child, worker_name=worker, suspects=bool(alone), alone=alone,
        )  # fmt: skip
        got = store.claim(request, using="default")
        assert {claimed.job_id for claimed in got} == {work.job for work in expected}
        for claimed in got:
            work = self.model.jobs[claimed.job_id]
            self.model.claimed(
                work, attempt=claimed.attempt_id, worker=self.ids[worker], child=child, alone=alone.value, lease=LEASE
            )
        self.claims += got

    def _held(self, data: st.DataObject) -> tuple[store.Claimed, Work, bool]:
        owners = [each for each in self.claims if self.model.jobs[each.job_id].owned_by(each.attempt_id)]
        claimed = data.draw(st.sampled_from([*owners, *self.claims[-2:]]))
        work = self.model.jobs[claimed.job_id]
        return claimed, work, work.owned_by(claimed.attempt_id)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), values=st.lists(st.integers(0, 2), min_size=1, max_size=3))
    def progress(self, data: st.DataObject, values: list[int]) -> None:
        """The holder keeps its lease by progress that grows, and by no other."""
        claimed, work, owns = self._held(data)
        ends_at = claimed.claimed_at + timedelta(days=1)
        for value in values:
            accepted = owns and self.model.renewed(work, value, lease=LEASE)
            done = _accepted(partial(store.renew, claimed, progress=value, total=None, lease=LEASE, ends_at=ends_at))
            assert done == accepted

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        """Only the holder succeeds."""
        claimed, work, owns = self._held(data)
        assert _accepted(lambda: store.succeed(claimed, result=None, budget=BUDGET)) == owns
        if owns:
            self.model.end(work, "succeeded", "succeeded")

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), error=st.sampled_from(list(ErrorClass)), delay=st.sampled_from([SECOND, 30 * SECOND]))
    def fail(self, data: st.DataObject, error: ErrorClass, delay: timedelta) -> None:
        """Only the holder fails, and the policy says what follows."""
        claimed, work, owns = self._held(data)
        counters = count_failure(claimed.counters, error, same=False)
        record = ErrorRecord(type="ValueError", message="no", traceback="…", fingerprint="v1:" + "f" * 64)
        failure = store.Failure(error=record, error_class=error, counters=counters)
        following = after_failure(
            POLICY, error_class=error, counters=counters, age=timedelta(0), retry_after=None, useful_left=None
        )
        if isinstance(following, DeadLetter):
            reason = following.reason
            done = _accepted(lambda: store.dead_letter(claimed, failure=failure, reason=reason, budget=BUDGET))
        else:
            done = _accepted(lambda: store.fail(claimed, failure=failure, delay=delay, budget=BUDGET))
        assert done == owns
        if owns:
            self.model.failed(work, error.value, delay)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """Only the holder gives a job back."""
        claimed, work, owns = self._held(data)
        assert store.release(claimed, message="stopping") == owns
        if owns:
            work.free += 1
            self.model.end(work, "released", "queued")

    @precondition(lambda self: self._has("running"))
    @rule(worker=WORKERS, child=st.integers(1, 2))
    def die(self, worker: str, child: int) -> None:
        """A process ends, and its supervisor takes back what it held."""
        owner = self.ids[worker]
        mine = [
            work
            for work in self.model.jobs.values()
            if work.state == "running" and (work.tries[-1].worker, work.tries[-1].child) == (owner, child)
        ]
        found = store.held_by(worker_id=owner, child=child, using="default")
        assert {item.job_id for item in found} == {work.job for work in mine}
        assert take_back(found, exit_status=-9) == []
        for work in mine:
            self._lose(work, "exit")

    @precondition(lambda self: self._has("running"))
    @rule()
    def reap(self) -> None:
        """Whose worker is silent, or whose lease has been over for long, is taken back; nobody else is."""
        lost = self.model.lost_now()
        found = store.abandoned(using="default")
        assert {item.job_id: item.cause.value for item in found} == lost
        assert take_back(found) == []
        for job_id, cause in lost.items():
            self._lose(self.model.jobs[job_id], cause)

    def _lose(self, work: Work, cause: str) -> None:
        at_once = self.model.lost(work, cause)
        if not at_once:  # a random part of a second
            due = Job.objects.values_list("available_at", flat=True).get(pk=work.job)
            assert self.now <= due <= self.now + SECOND
            work.due = due

    @precondition(lambda self: self._has(*WAITING, "running"))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """A waiting job ends; a running one is cancelled when its attempt leaves it waiting."""
        work = data.draw(st.sampled_from([w for w in self.model.jobs.values() if w.state in (*WAITING, "running")]))
        if work.state == "running" and work.cancel_wanted:
            return  # it was asked for, and would be refused
        decided(Cancel(work.job, using="default"))
        if work.state == "running":
            work.cancel_wanted = True
        else:
            self.model.cancelled(work)

    @precondition(lambda self: self._has("dead_lettered"))
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        """A dead letter begins anew, with its number of attempts."""
        work = data.draw(st.sampled_from([w for w in self.model.jobs.values() if w.state == "dead_lettered"]))
        decided(Replay(work.job, using="default"))
        self.model.replayed(work)

    @precondition(lambda self: self.claims)
    @rule(worker=WORKERS)
    def beat(self, worker: str) -> None:
        """A worker says that it lives."""
        assert beat(self.ids[worker], using="default")
        self.model.beats[self.ids[worker]] = self.now

    @precondition(lambda self: self._has("failed"))
    @rule()
    def promote(self) -> None:
        """What is due becomes ready."""
        store.promote(["default"], using="default")
        self.model.promote()

    @rule(step=STEPS)
    def pass_time(self, step: timedelta) -> None:
        """Time goes on for everybody."""
        self.now += step
        self.model.now = self.now

    @invariant()
    def rows_are_what_the_model_says(self) -> None:
        """Every job, its counters, and every attempt."""
        tries: dict[uuid.UUID, list[tuple[Any, ...]]] = {}
        for attempt in Attempt.objects.order_by("job_id", "number"):
            tries.setdefault(attempt.job_id, []).append((attempt.pk, attempt.outcome, attempt.progress))
        found = {row.pk: _seen(row, tuple(tries.get(row.pk, ()))) for row in Job.objects.all()}
        assert found == {work.job: work.seen() for work in self.model.jobs.values()}

    def teardown(self) -> None:
        """Let nothing fail any more: everything ends, and all invariants hold."""
        try:
            self._come_to_rest()
        finally:
            self._stack.close()

    def _come_to_rest(self) -> None:
        for _ in range(ROUNDS):
            self.beat("a")
            self.reap()
            self.promote()
            for alone in (Alone.NO, Alone.WORKER):
                self._claim("a", 1, 20, alone)
            for claimed in self.claims:
                if self.model.jobs[claimed.job_id].owned_by(claimed.attempt_id):
                    store.succeed(claimed, result=None, budget=BUDGET)
                    self.model.end(self.model.jobs[claimed.job_id], "succeeded", "succeeded")
            self.pass_time(31 * SECOND)
        self.rows_are_what_the_model_says()
        assert {work.state for work in self.model.jobs.values()} <= set(ENDED), "something never ends"
        violated = {item.invariant.name: item.ids for item in verify(using="default").violated}
        assert violated == {}


def _seen(row: Job, tries: tuple[tuple[Any, ...], ...]) -> tuple[Any, ...]:
    counters = (
        *(row.unknown_count, row.transient_count, row.free_count),
        *(row.lost_count, row.exit_lost_count, row.silent_lost_count),
    )
    return (row.state, row.dead_reason, row.generation, row.available_at, row.isolation, counters, tries)


def _accepted(act: Any) -> bool:
    try:
        act()
    except LeaseLostError:
        return False
    return True


def run(server: Server, work: Any, *, examples: int, steps: int, same: bool) -> None:
    """Run so many histories of so many steps."""
    machine = type("Machine", (Jobs,), {"declared": work, "server": server})
    chosen = settings(
        max_examples=examples, stateful_step_count=steps, derandomize=same, deadline=None, print_blob=True,
        suppress_health_check=list(HealthCheck), database=None,
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=chosen)


@pytest.mark.timeout(600)  # what fails is made shorter for minutes before it is told
def test_random_histories_end_as_the_model_says(server: Server, work: Any) -> None:
    """The same histories in each run."""
    run(server, work, examples=80, steps=40, same=True)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_random_histories_end_as_the_model_says(server: Server, work: Any) -> None:
    """Other histories in each run, and many."""
    run(server, work, examples=1500, steps=80, same=False)
