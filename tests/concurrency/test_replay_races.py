"""Many people who decide about one dead letter at the same moment, and many workers on one request."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import transaction

from django_jobs import clock
from django_jobs.exceptions import ActionChangedError, ActionRefusedError, RowBusyError
from django_jobs.models import Job, OperatorAction, ReplayItem, ReplayRequest
from django_jobs.operate.action import Decision, Done
from django_jobs.operate.discard import Discard
from django_jobs.operate.replay import Replay
from django_jobs.operate.replay_many import ReplayMany
from django_jobs.operate.replay_runner import replay_one, turn
from django_jobs.operate.selection import Selection
from django_jobs.operate.verify import verify
from django_jobs.store.decisions import lock_job
from tests.crowd import meanwhile, together
from tests.databases import Server
from tests.factories import JobFactory
from tests.factories_decisions import decided, operator

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 20


def submits(decision: Decision) -> Callable[[], Done]:
    """Return what carries out the decision as it is seen now, and again when SQLite's only write lock was busy."""
    digest = decision.plan().digest

    def submit() -> Done:
        for _ in range(10):
            try:
                return decision.submit(operator(), digest=digest)
            except RowBusyError:
                continue
        raise AssertionError("busy all the time")

    return submit


def test_twenty_submits_of_one_plan_are_one_replay(server: Server) -> None:
    """One replays; the nineteen others learn that it changed since they looked."""
    job = JobFactory(dead_lettered=True)
    results = together(*[submits(Replay(job.pk, using="default")) for _ in range(MANY)])

    kinds = Counter("done" if isinstance(item, Done) else isinstance(item, ActionChangedError) for item in results)
    assert kinds == {"done": 1, True: MANY - 1}
    job.refresh_from_db()
    assert (job.state, job.generation) == ("queued", 2)
    assert OperatorAction.objects.count() == 1
    assert verify(using="default").violated == ()


def test_f24_two_operators_at_one_moment_are_one_replay(server: Server) -> None:
    """F24: one of them replays; the other one is told who did. A third, who looked before both, is told the same."""
    job = JobFactory(dead_lettered=True)
    decision = Replay(job.pk, using="default")
    digest = decision.plan().digest

    def submit(actor: str) -> Done:
        for _ in range(10):
            try:
                return decision.submit(operator(actor=actor), digest=digest)
            except RowBusyError:
                continue
        raise AssertionError("busy all the time")

    results = together(lambda: submit("ada"), lambda: submit("bob"))

    (error,) = [item for item in results if not isinstance(item, Done)]
    audit = OperatorAction.objects.get()
    assert isinstance(error, ActionChangedError)
    assert f"It was already replayed by {audit.actor}" in str(error)
    with pytest.raises(ActionChangedError, match=f"already replayed by {audit.actor}"):
        submit("eve")
    job.refresh_from_db()
    assert (job.state, job.generation, OperatorAction.objects.count()) == ("queued", 2, 1)
    assert verify(using="default").violated == ()


def test_f24_running_job_and_changed_state_are_not_replayed(server: Server) -> None:
    """F24: a job that runs is refused in plain words; a dead letter that died again since the look is another one."""
    running, job = JobFactory(running=True), JobFactory(dead_lettered=True)
    refused = Replay(running.pk, using="default").plan()
    assert refused.refused == "Only a dead letter can be replayed; this job is running."
    with pytest.raises(ActionRefusedError):
        Replay(running.pk, using="default").submit(operator(), digest=refused.digest)
    seen = Replay(job.pk, using="default").plan()
    Job.objects.filter(pk=job.pk).update(revision=job.revision + 1)

    with pytest.raises(ActionChangedError, match="changed since you looked") as caught:
        Replay(job.pk, using="default").submit(operator(), digest=seen.digest)

    assert not isinstance(caught.value, ActionRefusedError), "it can be replayed, after another look"
    assert not OperatorAction.objects.exists()
    assert set(Job.objects.values_list("state", "generation")) == {("running", 1), ("dead_lettered", 1)}


def test_replay_and_discard_at_one_moment_are_one_decision(server: Server) -> None:
    """Whoever is first decides; the other one changed nothing."""
    for _ in range(5):
        job = JobFactory(dead_lettered=True)
        job.attempts.update(finished_at=job.dead_at)
        before = OperatorAction.objects.count()
        results = together(submits(Replay(job.pk, using="default")), submits(Discard(job.pk, using="default")))

        assert sorted(isinstance(item, Done) for item in results) == [False, True]
        assert OperatorAction.objects.count() == before + 1
        job.refresh_from_db()
        assert (job.state == "queued") != (job.resolution == "discarded")
    assert verify(using="default").violated == ()


@pytest.mark.postgres
def test_row_that_somebody_holds_is_not_waited_for(server: Server) -> None:
    """After a second the operator is told to try again; nothing was written."""
    job = JobFactory(dead_lettered=True)
    submit = Replay(job.pk, using="default")
    digest = submit.plan().digest

    def hold(pause: Callable[[], None]) -> None:
        with transaction.atomic():
            lock_job(job.pk, using="default")
            pause()

    with meanwhile(hold), pytest.raises(RowBusyError, match="Try again in a moment"):
        submit.submit(operator(), digest=digest)
    assert not OperatorAction.objects.exists()
    submit.submit(operator(), digest=digest)


def test_two_runners_replay_each_job_once(server: Server) -> None:
    """Workers that ignore each other's lease still replay nothing twice."""
    jobs = [JobFactory(dead_lettered=True) for _ in range(6)]
    decision = ReplayMany(
        Selection(queue="default"), using="default", acknowledged=["skip", "may_happen_again"], per_minute=60_000
    )
    decided(decision)
    request = ReplayRequest.objects.get()

    def run() -> int:
        done = 0
        for job in jobs:
            for _ in range(10):
                try:
                    done += replay_one(request, job.pk, using="default")
                    break
                except RowBusyError:
                    continue
        return done

    results = together(run, run, run)

    assert sum(results) == len(jobs)
    assert ReplayItem.objects.filter(outcome="queued").count() == len(jobs)
    assert OperatorAction.objects.filter(action="replay").count() == len(jobs)
    assert set(Job.objects.values_list("generation", flat=True)) == {2}
    moment = clock.now() + timedelta(minutes=2)
    with clock.override(lambda: moment):
        for _ in range(3):
            turn(uuid.uuid4(), using="default")
    assert OperatorAction.objects.filter(action="replay").count() == len(jobs)
