"""What people see and do about batches and chains: commands, the doctor, pruning, and what maintenance closes."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_jobs import batch, chain, faults
from django_jobs.exceptions import PermanentError
from django_jobs.faults.kinds import KINDS
from django_jobs.models import Batch, Chain, ChainLink, Job
from django_jobs.operate.batch_runner import BATCHES, close_batches
from django_jobs.operate.discard import Discard
from django_jobs.operate.doctor import diagnose
from django_jobs.operate.prune import prune
from django_jobs.operate.verify import verify
from django_jobs.testing import JobsKit
from tests.factories_decisions import decided
from tests.integration.composition.conftest import Declare


def fragile(n: int) -> None:
    """Fail where the number is negative."""
    if n < 0:
        raise PermanentError("no")


def after(n: int) -> None:
    """Do nothing."""


@pytest.fixture
def work(declare: Declare) -> Any:
    """A job type."""
    return declare(fragile)


@pytest.fixture
def follow(declare: Declare) -> Any:
    """What follows."""
    return declare(after)


def said(*arguments: str) -> str:
    """Return what ``manage.py jobs`` prints."""
    out = io.StringIO()
    call_command("jobs", *arguments, stdout=out)
    return out.getvalue()


def findings() -> dict[str, str]:
    """Return what the doctor says about batches."""
    return {one.id: one.text for one in diagnose(using="default").findings if one.id.startswith("batch")}


@pytest.mark.parametrize("point", ["batch.before_close", "batch.after_update"])
def test_maintenance_closes_what_a_crash_left(jobs: JobsKit, work: Any, follow: Any, point: str) -> None:
    """A worker that fails between the last commit and the closing leaves an open batch, which any worker closes."""
    made = batch.enqueue([work.prepare(1)], callback=follow.prepare(1))
    with faults.armed(point, KINDS["raise"]) as fired:
        jobs.run_one()

    assert fired()
    assert (Job.objects.get().state, made.refresh().state) == ("succeeded", "open")
    jobs.clock.tick(timedelta(minutes=2))
    assert str(made.id) in findings()["batch-not-closed"]
    violated = verify(using="default", patience=timedelta(0)).violated
    assert {(one.invariant.name, one.ids) for one in violated} == {("L3", (str(made.id),))}
    assert BATCHES.is_due("default")
    assert BATCHES.turn(made.id, "default") is None
    assert (made.refresh().state, BATCHES.is_due("default"), findings()) == ("closed", False, {})
    assert Job.objects.filter(job_type="kit.after").count() == 1
    jobs.assert_invariants()


def test_batch_that_cannot_be_closed_holds_up_no_other(
    jobs: JobsKit, work: Any, follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maintenance logs what went wrong with one and goes on with the next."""
    made = [batch.enqueue([work.prepare(1)], callback=follow.prepare(n)) for n in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr("django_jobs.worker.following.close_batch", lambda *_, **__: False)
        jobs.run_one()
        jobs.run_one()
    Batch.objects.filter(pk=made[0].id).update(callback="no json")

    assert close_batches(using="default") == 1
    assert [one.refresh().state for one in made] == ["open", "closed"]


def test_commands_and_the_doctor_tell_what_is_waited_for(jobs: JobsKit, work: Any, follow: Any) -> None:
    """A batch that a dead letter keeps open is named by the doctor, and its page says which one."""
    made = batch.enqueue([work.prepare(1), work.prepare(-1)], callback=follow.prepare(1), owner="ops", key="import:7")
    jobs.run_until_idle()
    dead = Job.objects.get(state="dead_lettered")

    assert f"{made.id} (ops)" in findings()["batch-waits-for-dead-letter"]
    assert "open: a dead letter keeps it so" in said("batches")
    assert said("batches", "--open") == said("batches")
    shown = said("batches", str(made.id))
    assert str(dead.pk) in shown
    assert "PermanentError" in shown
    read = json.loads(said("batches", str(made.id), "--json"))
    assert (read["state"], read["succeeded"], read["dead"], read["key"]) == ("open", 1, 1, "import:7")
    assert json.loads(said("batches", "--json"))["id"] == str(made.id)
    with pytest.raises(CommandError, match="There is no batch"):
        said("batches", str(dead.pk))


def test_chains_are_listed_with_their_place(jobs: JobsKit, work: Any, follow: Any) -> None:
    """The list says how far each has come; one chain is shown link by link."""
    assert said("chains") == "There is no chain.\n"
    assert said("batches") == "There is no such batch.\n"
    made = chain(work.prepare(-1), follow.prepare(1), owner="ops", key="order:7").enqueue()
    jobs.run_until_idle()

    assert "1 of 2" in said("chains")
    shown = said("chains", str(made.id))
    assert f"Chain {made.id}: stopped." in shown
    assert "waiting" in shown
    assert json.loads(said("chains", str(made.id), "--json"))["links"][1]["state"] == "waiting"
    assert json.loads(said("chains", "--json"))["key"] == "order:7"
    with pytest.raises(CommandError, match="There is no chain"):
        said("chains", str(Job.objects.get().pk))


def test_rows_go_when_their_jobs_are_gone(jobs: JobsKit, work: Any, follow: Any) -> None:
    """Batches and chains are pruned behind their last job, and stay while one of them waits for a human."""
    closed = batch.enqueue([work.prepare(1)], callback=follow.prepare(1))
    held = batch.enqueue([work.prepare(-1)])
    done = chain(work.prepare(1), follow.prepare(1)).enqueue()
    stopped = chain(work.prepare(-1), follow.prepare(1)).enqueue()
    jobs.run_until_idle()

    jobs.clock.tick(timedelta(days=399))
    assert (prune(using="default").batches, prune(using="default").chains) == (0, 0)
    jobs.clock.tick(timedelta(days=3))
    found = prune(using="default", batch=1)
    found = found if found.batches else prune(using="default")
    assert (found.batches, found.chains) == (1, 1)
    assert set(Batch.objects.values_list("pk", flat=True)) == {held.id}
    assert set(Chain.objects.values_list("pk", flat=True)) == {stopped.id}
    assert set(ChainLink.objects.values_list("chain_id", flat=True)) == {stopped.id}
    assert not Batch.objects.filter(pk=closed.id).exists()
    assert not ChainLink.objects.filter(chain_id=done.id).exists()
    jobs.assert_invariants()


def test_members_of_an_open_batch_stay_to_be_counted(jobs: JobsKit, work: Any) -> None:
    """However old a success is: the batch that waits for another member counts both when it is closed."""
    made = batch.enqueue([work.prepare(1), work.prepare(-1)])
    jobs.run_until_idle()
    jobs.clock.tick(timedelta(days=500))

    found = prune(using="default")
    assert (found.jobs, dict(found.kept)) == (0, {"batch": 1})
    decided(Discard(Job.objects.get(state="dead_lettered").pk, using="default"))
    assert (made.refresh().succeeded, made.refresh().resolved) == (1, 1)
    assert prune(using="default").jobs == 1
    jobs.assert_invariants()
