"""``manage.py jobs replay|discard|…``: the plan first, the deed with its digest, and the exit codes."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import pytest
from django.core.management import CommandError

from django_jobs.exceptions import RowBusyError
from django_jobs.models import Job, OperatorAction, ReplayRequest
from django_jobs.operate.action import Decision
from tests.integration.commands.test_jobs_command import jobs
from tests.integration.operate.stories import Story

pytestmark = pytest.mark.django_db

WHO = ("--as", "ada", "--owner", "billing", "--reason", "the provider is back")


def dead() -> Story:
    """A dead letter after a charge that may have been applied."""
    story = Story(key="order:7").claim()
    story.effect().send().answer("unknown")
    return story.fail(error_class="permanent", dead="permanent")


def digest_in(text: str) -> str:
    """Return what the plan says to repeat."""
    found = re.search(r"^--ack (v1:[0-9a-f]{64})$", text, flags=re.MULTILINE)
    assert found is not None, text
    return found[1]


@pytest.mark.parametrize(("verb", "after"), [("replay", ("queued", None)), ("discard", ("dead_lettered", "discarded"))])
def test_plan_first_then_the_deed(verb: str, after: tuple[str, str | None]) -> None:
    """Without --ack nothing happens and the digest is printed; with it the same command acts; once."""
    story = dead()
    text, code = jobs(verb, story.job.pk)
    assert code == 0
    assert "Nothing was done" in text
    assert Job.objects.get().revision == story.job.revision

    done, code = jobs(verb, story.job.pk, *WHO, "--ack", digest_in(text))

    row = Job.objects.get()
    assert (code, row.state, row.resolution) == (0, *after)
    assert str(row.pk) in done
    assert OperatorAction.objects.get().reason == "the provider is back"
    again, code = jobs(verb, story.job.pk, *WHO, "--ack", digest_in(text))
    assert (code, OperatorAction.objects.count()) == (4, 1)
    assert "dead letter" in again


def test_changed_plan_ends_with_four_and_is_printed() -> None:
    """What changed since the look is shown, with the digest of now."""
    story = dead()
    old = digest_in(jobs("replay", story.job.pk)[0])

    text, code = jobs("replay", story.job.pk, "--extra-attempts", 2, *WHO, "--ack", old)

    assert code == 4
    assert "changed since you looked" in text
    assert digest_in(text) != old
    assert not OperatorAction.objects.exists()


def test_programs_get_json() -> None:
    """Plan, deed and refusal are one line of JSON each."""
    story = dead()
    plan, code = jobs("replay", story.job.pk, "--json")
    told = json.loads(plan)
    assert (code, told["outcome"], told["facts"]["effects"][0]["on_replay"]) == (0, "planned", "same_key")
    assert [item["name"] for item in told["acknowledge"]] == ["state"]

    changed, code = jobs("discard", story.job.pk, *WHO, "--ack", told["digest"], "--json")
    assert (code, json.loads(changed)["outcome"]) == (4, "changed")

    done, code = jobs("replay", story.job.pk, *WHO, "--ack", told["digest"], "--json")
    assert (code, json.loads(done)["outcome"], json.loads(done)["generation"]) == (0, "done", 2)
    assert json.loads(done)["action"] == str(OperatorAction.objects.get().pk)

    refused, code = jobs("replay", story.job.pk, "--json")
    assert (code, json.loads(refused)["outcome"]) == (1, "refused")


@pytest.mark.parametrize(
    "options",
    [
        ("--ack", "v1:0"),
        ("--as", "ada", "--owner", "billing", "--reason", "short", "--ack", "v1:0"),
        ("--extra-attempts", "-1"),
        ("--useful-for", "ages"),
        ("--in", "soon"),
        ("--run-after", "soon"),
    ],
)
def test_what_cannot_be_meant_is_usage(options: tuple[str, ...]) -> None:
    """Who, for whom and why are needed to act, and values must make sense."""
    with pytest.raises(CommandError) as raised:
        jobs("replay", dead().job.pk, *options)

    assert raised.value.returncode == 2
    assert not OperatorAction.objects.exists()


def test_unknown_job_is_usage() -> None:
    """No job, no plan."""
    with pytest.raises(CommandError, match="There is no job") as raised:
        jobs("replay", uuid.uuid4())

    assert raised.value.returncode == 2


def test_busy_row_is_refused_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is committing the job is said to be the reason."""

    def busy(*args: Any, **options: Any) -> None:
        raise RowBusyError("A worker is committing this job just now; nothing was done.")

    monkeypatch.setattr(Decision, "submit", busy)

    text, code = jobs("discard", dead().job.pk, *WHO, "--ack", "v1:0")

    assert code == 1
    assert "committing this job" in text


def test_hostile_text_does_not_drive_the_terminal() -> None:
    """Control signs of stored names are shown as harmless ones."""
    story = Story().claim()
    story.effect("order:\x1b[31m", dedupe="none", on_ambiguous="resend").send()
    story.fail(error_class="permanent", dead="permanent")

    text, _ = jobs("replay", story.job.pk)

    assert "\x1b" not in text
    assert "order:" in text


def test_many_are_replayed_by_a_request() -> None:
    """A filter instead of a job makes a request, which a worker carries out and another verb ends."""
    for _ in range(2):
        Story().claim().fail(error_class="permanent", dead="permanent")
    text, code = jobs("replay", "--queue", "payments", "--per-minute", 100, "--canary", 1)
    assert (code, "Replay 2 dead letters of 2 selected" in text) == (0, True)

    done, code = jobs(
        "replay", "--queue", "payments", "--per-minute", 100, "--canary", 1, *WHO, "--ack", digest_in(text)
    )

    request = ReplayRequest.objects.get()
    assert (code, request.total, request.per_minute, request.canary) == (0, 2, 100, 1)
    assert str(request.pk) in done
    plan, code = jobs("cancel-replay", request.pk)
    assert code == 0
    assert jobs("cancel-replay", request.pk, *WHO, "--ack", digest_in(plan))[1] == 0
    request.refresh_from_db()
    assert request.state == "cancelled"


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay",),
        ("replay", "--canary", "1"),
        ("replay", "--queue", "payments", "--in", "2h"),
        ("replay", "--queue", "payments", "--per-minute", "0"),
        ("replay", "--ids", "nothing"),
        ("replay", uuid.UUID(int=1), "--queue", "payments"),
        ("replay", "--dead-from", "soon"),
        ("cancel-replay", "nothing"),
        ("cancel-replay", uuid.UUID(int=1)),
    ],
)
def test_selection_that_cannot_be_meant_is_usage(arguments: tuple[object, ...]) -> None:
    """Nothing selected, one and many mixed, and values that are none."""
    with pytest.raises(CommandError) as raised:
        jobs(*arguments)

    assert raised.value.returncode == 2
