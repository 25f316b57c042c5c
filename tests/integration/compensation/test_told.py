"""What people read about a job and the one that takes something of it back, and what pruning keeps of both."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from django_jobs.models import Compensation, Job, JobPayload, OperatorAction
from django_jobs.operate.explain import explain
from django_jobs.operate.prune import prune
from django_jobs.operate.verify import verify
from tests.integration.operate.stories import Story, later
from tests.integration.operate.taken_back import TakenBack, charged, healthy_compensations, settled

pytestmark = pytest.mark.django_db


def story(job: Job) -> str:
    """All that is told about a job."""
    return "\n".join(line for section in explain(job, using="default").sections for line in section.lines)


def test_original_tells_who_takes_it_back() -> None:
    """Open, given up and done are told at the effect, each with the job's id."""
    told = charged()
    given_up = TakenBack(told).give_up()
    assert f"Job {given_up.story.job.pk} was to take it back and was given up" in story(told.story.job)
    done = TakenBack(told)
    assert f"Is being taken back by job {done.story.job.pk}" in story(told.story.job)
    done.succeed()

    assert f"Was taken back by job {done.story.job.pk}" in story(told.story.job)


def test_compensation_tells_what_it_takes_back_and_who_decided() -> None:
    """The effect, the original job, and the decision with its reason."""
    taken = TakenBack(charged())

    text = story(taken.story.job)

    assert f"It takes back the effect charge ({taken.effect.row.business_key}) of job" in text
    assert "ada decided that at" in text
    assert "the customer gave it back" in text


@pytest.mark.parametrize("done", [False, True])
def test_replay_of_a_job_whose_effect_is_taken_back_is_refused(done: bool) -> None:
    """While a compensation is open, and after it has succeeded."""
    told = charged()
    taken = TakenBack(told)
    if done:
        taken.succeed()

    assert "taken back" in explain(told.story.job, using="default").replay.refused


def test_given_up_compensation_does_not_stand_against_a_replay() -> None:
    """A void one refuses nothing."""
    told = charged()
    TakenBack(told).give_up()

    assert explain(told.story.job, using="default").replay.refused == ""


def test_show_prints_both_sides() -> None:
    """As tables and as JSON."""
    taken = TakenBack(charged())

    def show(job: Any, *flags: str) -> str:
        out = StringIO()
        call_command("jobs", "show", str(job.pk), *flags, stdout=out)
        return out.getvalue()

    original = json.loads(show(taken.effect.story.job, "--json"))
    own = json.loads(show(taken.story.job, "--json"))
    assert [row["job_id"] for row in original["effects"][0]["compensations"]] == [str(taken.story.job.pk)]
    assert own["takes_back"]["original_job_id"] == str(taken.effect.story.job.pk)
    assert "COMPENSATIONS" in show(taken.effect.story.job)
    assert "TAKES BACK" in show(taken.story.job)


def violated() -> list[str]:
    """Name what does not hold."""
    return [item.invariant.name for item in verify(using="default").violated]


def test_nothing_of_an_original_is_pruned_while_it_is_being_taken_back() -> None:
    """Its arguments are needed for the request, its rows for the answer; the run says why they stay."""
    paid = Story().claim()
    told = paid.effect("order:1").send().answer("confirmed")
    paid.succeed()
    TakenBack(told)

    with later(days=900):
        found = prune(using="default")

    assert found.kept == {"needed": 1}
    assert JobPayload.objects.count() == 2
    assert violated() == []


def test_original_and_what_took_it_back_go_in_their_order() -> None:
    """A compensation's job stays as long as what it took back; then both go, and only the audit stays."""
    told = charged()
    TakenBack(told).give_up()
    TakenBack(told).succeed()
    settled(told)

    with later(days=900):
        prune(using="default")
        assert Compensation.objects.count() == 0
        assert not Job.objects.filter(pk=told.story.job.pk).exists()
        assert violated() == []
        prune(using="default")

    assert Job.objects.count() == 0
    assert OperatorAction.objects.filter(action="compensate").count() == 2
    assert violated() == []


def test_compensation_that_ended_lately_keeps_the_original() -> None:
    """What was decided about an effect belongs to its audit period."""
    told = charged()
    taken = TakenBack(told).succeed()
    settled(told)
    Compensation.objects.update(closed_at=taken.story.now + timedelta(days=300))

    with later(days=401):
        found = prune(using="default")

    assert found.kept == {"audit": 1, "needed": 1}
    assert Compensation.objects.count() == 1


def test_partly_taken_back_dead_letter_is_never_pruned() -> None:
    """It waits for a human: nobody has settled it, and what took back a part of it stays too."""
    taken = TakenBack(charged()).succeed()

    with later(days=900):
        prune(using="default")

    assert Job.objects.filter(pk__in=[taken.story.job.pk, taken.effect.story.job.pk]).count() == 2


def test_healthy_compensations_survive_a_day_of_pruning() -> None:
    """Content goes, and everything still adds up."""
    healthy_compensations()

    with later(days=100):
        prune(using="default")
        assert violated() == []
