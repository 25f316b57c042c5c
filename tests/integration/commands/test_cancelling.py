"""``jobs cancel`` and ``jobs resolve``: the plan, the digest that carries it out, and the exit codes."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_jobs.models import Job, OperatorAction, SideEffect
from tests.databases import Server
from tests.factories import JobFactory
from tests.integration.operate.stories import Story
from tests.integration.operate.test_resolve import EVIDENCE, dead

pytestmark = pytest.mark.django_db

WHO = ("--as", "ada", "--owner", "payments", "--reason", "the order was withdrawn")


def jobs(*arguments: str) -> tuple[int, str]:
    """Run the command; returns its exit code and what it printed."""
    out = io.StringIO()
    try:
        call_command("jobs", *arguments, stdout=out)
    except SystemExit as end:
        return int(str(end.code)), out.getvalue()
    except CommandError as error:
        return error.returncode, str(error)
    return 0, out.getvalue()


def planned(*arguments: str) -> dict[str, Any]:
    """Return the plan as JSON."""
    code, text = jobs(*arguments, *WHO, "--json")
    plan: dict[str, Any] = json.loads(text)
    assert code == (1 if plan["refused"] else 0)
    return plan


def test_cancel_shows_its_plan_and_then_acts(database: Server) -> None:
    """Without --ack nothing happens; with it the job is cancelled once, and the same digest does nothing twice."""
    job = JobFactory()
    digest = planned("cancel", str(job.pk))["digest"]
    assert Job.objects.get().state == "queued"

    assert jobs("cancel", str(job.pk)[:13], *WHO, "--ack", digest) == (0, "Cancelled.\n")

    assert Job.objects.get().state == "cancelled"
    assert jobs("cancel", str(job.pk), *WHO, "--ack", digest)[0] == 4
    assert OperatorAction.objects.count() == 1


def test_cancel_of_what_changed_exits_4(database: Server) -> None:
    """A job that moved on since the look is shown anew."""
    story = Story()
    digest = planned("cancel", str(story.job.pk))["digest"]
    story.claim()

    code, text = jobs("cancel", str(story.job.pk), *WHO, "--ack", digest)

    assert code == 4
    assert "changed since you looked" in text
    assert f"--ack {planned('cancel', str(story.job.pk))['digest']}" in text


def test_cancel_of_a_running_job_says_what_to_expect(database: Server) -> None:
    """The plan tells that a success may be faster, and the answer that the attempt was asked."""
    story = Story().claim()
    code, text = jobs("cancel", str(story.job.pk), *WHO)
    assert (code, "Whoever commits first wins" in text) == (0, True)

    code, text = jobs("cancel", str(story.job.pk), *WHO, "--ack", planned("cancel", str(story.job.pk))["digest"])

    assert (code, "Asked attempt 1 to end." in text) == (0, True)
    assert "attempt 1 has not ended yet" in jobs("show", str(story.job.pk))[1]


@pytest.mark.parametrize(
    ("given", "state"),
    [
        (("--applied", "ch_7"), "succeeded"),
        (("--not-applied", "--evidence", EVIDENCE), "rejected"),
        (("--abandon", "--evidence", EVIDENCE), "abandoned"),
    ],
)
def test_resolve_shows_its_plan_and_then_acts(database: Server, given: tuple[str, ...], state: str) -> None:
    """The effect is found by the first digits of its id, and settled as said."""
    told = dead()
    digest = planned("resolve", str(told.row.pk), *given)["digest"]

    code, text = jobs("resolve", str(told.row.pk)[:13], *given, *WHO, "--ack", digest)

    assert (code, f"The effect is {state} now." in text) == (0, True)
    assert SideEffect.objects.get().state == state


@pytest.mark.parametrize(
    "arguments",
    [
        ("cancel", "nonsense"),
        ("cancel", "0" * 32),
        ("resolve", "0" * 32, "--applied", "x"),
        ("resolve", "EFFECT", "--not-applied"),
        ("resolve", "EFFECT", "--not-applied", "--evidence", "saw it"),
        ("resolve", "EFFECT", "--applied", "ch_1", "--ack", "v1:0", "--as", "ada"),
    ],
)
def test_usage_errors_exit_2(database: Server, arguments: tuple[str, ...]) -> None:
    """What cannot be meant is refused as usage, and writes nothing."""
    effect = str(dead().row.pk)

    assert jobs(*[effect if argument == "EFFECT" else argument for argument in arguments])[0] == 2
    assert not OperatorAction.objects.exists()


def test_refusal_exits_1_with_the_reason(database: Server) -> None:
    """What cannot be done now is told, for people and for programs."""
    told = Story().claim().effect(dedupe="none").send().answer("unknown")

    code, text = jobs("resolve", str(told.row.pk), "--not-applied", "--evidence", EVIDENCE, *WHO)

    assert code == 1
    assert "REFUSED: The job that owns the effect is still working on it" in text
