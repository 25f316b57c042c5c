"""Chains: each link is enqueued by the transaction that records the success of the one before."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, transaction

from django_jobs import JobContext, batch, chain, chain_result
from django_jobs.exceptions import DefinitionError, PayloadError, PermanentError, ResultGoneError
from django_jobs.models import Chain, ChainLink, Job, JobPayload
from django_jobs.operate.batch_runner import close_batches
from django_jobs.operate.cancel import Cancel
from django_jobs.operate.explain import explain
from django_jobs.operate.replay import Replay
from django_jobs.testing import JobsKit
from tests.factories_decisions import decided
from tests.integration.composition.conftest import Declare


@pytest.fixture
def ran() -> list[Any]:
    """What handlers were given, in their order."""
    return []


@pytest.fixture
def steps(declare: Declare, ran: list[Any]) -> tuple[Any, Any, Any]:
    """A job that commits by its context, an atomic one, and one that commits by itself; each leaves a result."""

    def first(context: JobContext, order: int) -> None:
        with context.complete() as done:
            ran.append(("first", order))
            done.result = {"reserved": order}

    def second(order: int, reserved: dict[str, int]) -> str:
        ran.append(("second", order, reserved))
        return "paid"

    def third(payment: str, at: int = 0) -> None:
        ran.append(("third", payment))

    return declare(first, takes_context=True), declare(second), declare(third, atomic=False)


def whole(steps: tuple[Any, Any, Any], **options: Any) -> chain:
    """Return a chain of all three."""
    first, second, third = steps
    return chain(
        first.prepare(7),
        second.prepare(order=7).using(pass_result="reserved"),
        third.prepare().using(pass_result="payment"),
        first.prepare(8),
        **options,
    )


def test_links_run_one_after_the_other(jobs: JobsKit, steps: Any, ran: list[Any]) -> None:
    """Each link is there once the one before has succeeded, whichever way that commits, and may get its result."""
    made = whole(steps).enqueue()
    assert (made.outcome, made.state, Job.objects.count()) == ("created", "running", 1)

    report = jobs.run_until_idle()

    assert ran == [("first", 7), ("second", 7, {"reserved": 7}), ("third", "paid"), ("first", 8)]
    assert len(report.attempts) == 4
    found = chain_result(str(made.id))
    assert (found.state, [link.state for link in found.links]) == ("succeeded", ["succeeded"] * 4)
    assert {row.key for row in JobPayload.objects.all()} == {f"chain:{made.id}:{n}" for n in range(1, 5)}
    assert not ChainLink.objects.exclude(call="").exists()
    jobs.assert_invariants()


def test_chain_tells_its_links_one_story(jobs: JobsKit, steps: Any) -> None:
    """All jobs of a chain have one correlation id."""
    whole(steps).enqueue()
    jobs.run_until_idle()

    assert Job.objects.values_list("correlation_id", flat=True).distinct().count() == 1


def test_dead_link_stops_the_chain_and_its_replay_goes_on(jobs: JobsKit, declare: Declare, ran: list[Any]) -> None:
    """Nothing behind a dead letter runs; its explanation says so; a success after a replay enqueues the next, once."""
    broken = [True]

    def fragile() -> None:
        if broken[0]:
            raise PermanentError("no")

    def after() -> None:
        ran.append("after")

    made = chain(declare(fragile).prepare(), declare(after).prepare()).enqueue()
    jobs.run_until_idle()
    dead = Job.objects.get()

    assert (made.refresh().state, ran) == ("stopped", [])
    story = " ".join(line for part in explain(dead, using="default").sections for line in part.lines)
    assert f"link 1 of 2 of chain {made.id}" in story
    assert f"Chain {made.id} stands still here: 1 link behind it is not enqueued" in story
    broken[0] = False
    replay = Replay(dead.pk, using="default")
    assert "enqueues link 2, kit.after" in " ".join(replay.plan().lines)
    decided(replay)
    jobs.run_until_idle()
    assert (made.refresh().state, ran) == ("succeeded", ["after"])
    jobs.assert_invariants()


def test_cancelled_link_ends_the_chain(jobs: JobsKit, steps: Any, ran: list[Any]) -> None:
    """The plan of the cancel says that nothing follows, and nothing does."""
    made = whole(steps).enqueue()
    cancel = Cancel(Job.objects.get().pk, using="default")
    assert f"Chain {made.id} ends with it: 3 links behind it are not enqueued, ever." in cancel.plan().lines
    decided(cancel)
    jobs.run_until_idle()

    assert (made.refresh().state, ran) == ("ended", [])
    jobs.assert_invariants()


def test_failure_inside_the_completion_enqueues_nothing(jobs: JobsKit, declare: Declare, ran: list[Any]) -> None:
    """A completion that is rolled back takes the next link with it; the next attempt enqueues it once."""
    tries: list[int] = []

    def flaky() -> None:
        tries.append(1)
        Group.objects.create(name="row")
        if len(tries) == 1:
            transaction.on_commit(lambda: None)
            raise OperationalError("the server closed the connection")

    def after() -> None:
        ran.append("after")

    made = chain(declare(flaky).prepare(), declare(after).prepare()).enqueue()
    jobs.run_until_idle()

    assert (ran, Group.objects.count(), made.refresh().state) == (["after"], 1, "succeeded")


def test_chain_in_a_batch_is_waited_for_to_its_end(jobs: JobsKit, steps: Any, declare: Declare, ran: list[Any]) -> None:
    """Each next link is a member before the one before has ended, so the batch is not closed in between."""

    def done(batch_counts: dict[str, int]) -> None:
        ran.append(batch_counts["succeeded"])

    with batch(callback=declare(done).prepare()) as made:
        whole(steps).enqueue()
    assert made.created == 1
    jobs.run_until_idle()
    close_batches(using="default")

    assert ran[-1] == 4
    assert made.refresh().is_closed
    jobs.assert_invariants()


def test_key_answers_a_second_chain(jobs: JobsKit, steps: Any) -> None:
    """One chain per key; the second enqueue stores nothing."""
    first, second = whole(steps, key="order:7").enqueue(), whole(steps, key="order:7").enqueue()

    assert (second.outcome, second.id) == ("duplicate", first.id)
    assert (Chain.objects.count(), ChainLink.objects.count(), Job.objects.count()) == (1, 4, 1)


def test_chain_commits_with_the_callers_transaction(jobs: JobsKit, steps: Any) -> None:
    """A rollback leaves nothing of it."""
    with transaction.atomic():
        made = whole(steps).enqueue()
        transaction.set_rollback(True)

    assert (Chain.objects.count(), ChainLink.objects.count(), Job.objects.count()) == (0, 0, 0)
    with pytest.raises(ResultGoneError):
        made.refresh()


def test_options_of_a_link_hold_when_its_turn_comes(jobs: JobsKit, declare: Declare, steps: Any) -> None:
    """Queue, priority, subject and delay are kept with the call."""

    def mail(order: int) -> None:
        """Do nothing."""

    first = steps[0].prepare(7)
    call = declare(mail, subject="order:{order}", owner="crm").prepare(7).using(queue_name="mail", priority=5)
    made = chain(first, call).enqueue()
    jobs.run_one()
    job = Job.objects.get(pk=made.refresh().links[1].job_id)

    assert (job.queue_name, job.priority, job.subject, job.owner) == ("mail", 5, "order:7", "crm")


def test_chains_that_cannot_be_are_refused_before_any_statement(jobs: JobsKit, steps: Any) -> None:
    """A typed error names what is wrong."""
    first, second, _ = steps
    with pytest.raises(DefinitionError, match="from 1 to"):
        chain()
    with pytest.raises(DefinitionError, match="prepare"):
        chain(first)
    with pytest.raises(DefinitionError, match="first link"):
        chain(second.prepare(7).using(pass_result="reserved"))
    with pytest.raises(DefinitionError, match="still to be given"):
        second.prepare(7).using(pass_result="order")
    with pytest.raises(DefinitionError, match="detached"):
        chain(first.using(detached=True).prepare(7))
    with pytest.raises(DefinitionError, match="key"):
        chain(first.using(key="mine").prepare(7))
    with pytest.raises(PayloadError):
        chain(first.prepare(7), second.prepare(7)).enqueue()
    with pytest.raises(DefinitionError, match="UUID"):
        chain_result("nonsense")
    with pytest.raises(ResultGoneError):
        chain_result(uuid.uuid4())
    assert (Chain.objects.count(), Job.objects.count()) == (0, 0)


def test_link_that_does_not_fit_the_result_is_dead_lettered(jobs: JobsKit, declare: Declare, steps: Any) -> None:
    """The job that left the result has succeeded; the one that cannot take it names the argument."""

    def wants_number(number: uuid.UUID) -> None:
        """Do nothing."""

    made = chain(steps[0].prepare(7), declare(wants_number).prepare().using(pass_result="number")).enqueue()
    jobs.run_until_idle()

    assert [link.state for link in made.refresh().links] == ["succeeded", "dead_lettered"]
    assert "'number'" in JobPayload.objects.get(job__state="dead_lettered").error_text
