"""What every reader says about a job whose content, or whose rows, were pruned."""

from __future__ import annotations

import json

import pytest
from django.core.management import CommandError
from django.db.models import F

from django_jobs import clock, receive
from django_jobs.models import IdempotencyKey, Job, JobPayload
from django_jobs.operate.doctor import diagnose
from django_jobs.operate.explain import explain
from django_jobs.operate.listing import Filters, list_jobs
from django_jobs.operate.lookup import JobNotFoundError, find_job
from django_jobs.operate.prune import prune
from tests.declared_consumers import on_payment
from tests.factories_outbox import DeliveryFactory
from tests.integration.commands.test_jobs_command import jobs
from tests.integration.operate.stories import Story, later

pytestmark = pytest.mark.django_db


def charged(key: str = "order:7") -> Story:
    """A job that failed once, charged, and succeeded."""
    story = Story(key=key).claim().fail().claim().step()
    story.effect(can_reconcile=True).send().answer("unknown").ask("succeeded")
    return story.succeed({"ref": "ch_1"})


def run(days: float) -> None:
    """Prune so many days from now."""
    with later(days=days):
        prune(using="default")


def test_explain_says_since_when_the_content_is_gone() -> None:
    """The date and the age are told; what happened, to which effect, with which reference, is still told."""
    story = charged()
    run(40)

    told = "\n".join(line for section in explain(Job.objects.get(), using="default").sections for line in section.lines)

    removed = Job.objects.get().content_removed_at
    assert removed is not None
    assert f"Payload: its content was removed at {removed:%Y-%m-%dT%H:%M:%SZ}, 40 d after its end." in told
    assert "If it had an idempotency key, that had expired and was removed with the content." in told
    assert "Attempt 1: worker web-1:4711" in told
    assert "failed after 1 s (unknown): shop.PaymentError." in told
    assert "provider reference ch_9" in told
    assert "Nothing: it succeeded" in told
    assert str(story.job.pk) in told


def test_key_that_still_lives_is_told_and_found() -> None:
    """The key's own row says it: explain names it, and the list finds the job by it."""
    story = charged()
    IdempotencyKey.objects.update(ttl_seconds=100 * 86400.0)
    run(40)

    told = explain(Job.objects.get(), using="default").sections[0].lines
    page = list_jobs(Filters(key="order:7"), using="default")

    assert any(line.startswith("Idempotency key order:7 in scope") and "live until" in line for line in told)
    assert [(item.job.pk, item.key) for item in page.jobs] == [(story.job.pk, "order:7")]
    assert list_jobs(Filters(key="order:8"), using="default").jobs == ()


def test_show_says_so_for_people_and_programs() -> None:
    """The payload's place tells when it went; JSON has the time and empty values."""
    story = charged()
    run(40)

    text, code = jobs("show", story.job.pk)
    shown = json.loads(jobs("show", story.job.pk, "--json")[0])

    assert "PAYLOAD\nremoved at " in text
    assert "TRACEBACK" not in text
    assert (code, shown["payload"], shown["key"]) == (0, None, None)
    assert shown["content_removed"].endswith("40 d after its end")
    assert shown["job"]["content_removed_at"].endswith("Z")
    assert (shown["effects"][0]["request"], shown["effects"][0]["result"]) == (None, {})
    assert shown["steps"][0]["result"] is None


def test_missing_payload_is_still_an_alarm() -> None:
    """Only what pruning recorded is called removed."""
    story = Story().claim().succeed()
    JobPayload.objects.all().delete()

    assert "its row is missing" in explain(story.job, using="default").sections[0].lines[1]


def test_job_that_is_gone_is_told_by_its_key() -> None:
    """Show and explain name the end and until when its key answers."""
    story = Story(key="order:7").claim().fail(error_class="permanent", dead="permanent").discard()
    IdempotencyKey.objects.update(ttl_seconds=F("ttl_seconds") + 500 * 86400.0)
    run(401)

    with pytest.raises(JobNotFoundError, match=r"ended dead_lettered \(discarded\) and was pruned.*order:7.*until 20"):
        find_job(str(story.job.pk), using="default")
    with pytest.raises(CommandError, match="was pruned"):
        jobs("explain", str(story.job.pk)[:13])


def test_job_that_is_gone_without_a_key_may_have_been_pruned() -> None:
    """Nothing is left of it but the record of its stretch; of other times nothing is said."""
    first, second, third = (Story().claim().succeed() for _ in range(3))
    run(401)

    with pytest.raises(JobNotFoundError, match="Finished jobs with ids near it were pruned, the last of them at 20"):
        find_job(str(second.job.pk), using="default")
    with pytest.raises(JobNotFoundError, match=r"in database 'default'\.$"):
        find_job("00000000", using="default")
    assert first.job.pk < second.job.pk < third.job.pk


@pytest.mark.parametrize(
    ("days", "what"),
    [(36, ""), (38, "the content of 1 job"), (408, "the content of 1 job, all rows of 1 job")],
)
def test_doctor_misses_the_pruning(days: int, what: str) -> None:
    """A week after the content should have gone there is a warning; none while there is nothing to remove."""
    Story().claim().succeed()
    Story().claim().fail(dead="permanent")

    with later(days=days):
        found = {item.id: item.text for item in diagnose(using="default").findings}

    assert ("not-pruned" in found) is bool(what)
    if what:
        assert f"more than 7 days ago: {what}; nothing ever was removed." in found["not-pruned"]


def test_doctor_misses_rows_and_names_the_last_run() -> None:
    """Content went, rows stay too long; after a run there is nothing to say."""
    Story().claim().succeed()
    run(40)

    with later(days=408):
        (text,) = [item.text for item in diagnose(using="default").findings if item.id == "not-pruned"]
        prune(using="default")
        after = {item.id for item in diagnose(using="default").findings}

    assert "days ago: all rows of 1 job; " in text
    assert "something was removed last at 20" in text
    assert "not-pruned" not in after


@pytest.mark.parametrize(
    ("days", "what"),
    [(41, ""), (43, "1 remembered message"), (96, "1 remembered message"),
     (98, "1 event, 1 remembered message, 2 quarantined messages")],
)  # fmt: skip
def test_doctor_misses_the_pruning_of_events_and_messages(days: int, what: str) -> None:
    """Each a week after its own time; an event that nobody received and that is dead is not missed."""
    DeliveryFactory(published=True)
    DeliveryFactory(dead_lettered=True)
    receive("payments", "evt_1", {}, consumer=on_payment)
    for content in (b"no", b"neither"):
        receive("payments", "evt_2", content, consumer=on_payment)

    with later(days=days):
        found = {item.id: item.text for item in diagnose(using="default").findings}
        prune(using="default")
        after = {item.id for item in diagnose(using="default").findings}

    assert (f"days ago: {what}; nothing ever was removed." in found.get("not-pruned", "")) is bool(what)
    assert "not-pruned" not in after


def test_command_says_what_it_took_and_what_it_kept() -> None:
    """For people a sentence each, for programs one object; a dry run is in another mood."""
    charged()
    story = Story().claim()
    story.effect("order:9").send().answer("unknown")
    story.fail(dead="effect_open").discard()
    DeliveryFactory(published=True)
    DeliveryFactory(dead_lettered=True)

    with later(days=95):
        dry, _ = jobs("prune", "--dry-run")
        text, code = jobs("prune", "--batch", "10", "--max-seconds", "60")
        found = json.loads(jobs("prune", "--json")[0])

    taken = "the content of 1 job, all rows of 0 jobs, 0 expired keys, 1 event, 0 remembered messages, "
    assert dry.startswith(f"Would remove {taken}0 quarantined messages, 0 replay requests in database 'default', in ")
    assert text.splitlines()[0].startswith(
        f"Removed {taken}0 quarantined messages, 0 replay requests, 0 old duplicates, 0 old workers, 0 old ticks, "
    )
    assert text.splitlines()[1:] == [
        "Kept 1 old job: the outcome of one of its effects is open or waits for a human.",
        "Kept 1 old event: one of its deliveries is neither published nor discarded.",
    ]
    assert (code, found["complete"], found["kept"], found["content"]) == (0, True, {"unresolved": 1}, 0)


def test_command_refuses_a_batch_that_cannot_be() -> None:
    """The message says what can."""
    with pytest.raises(CommandError, match="from 1 to 10000"):
        jobs("prune", "--batch", "10001")


def test_command_says_that_the_time_was_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run goes on; this is no failure."""
    Story().claim().succeed()
    monkeypatch.setattr("django_jobs.operate.prune._Run.time_is_up", True)

    text, code = jobs("prune")

    assert text.splitlines()[-1] == "The time was up before everything was looked at; run it again."
    assert code == 0


def test_verify_says_of_which_kind_the_pruned_rows_were() -> None:
    """Each kind by its own name, so that nobody takes events for jobs."""
    charged()
    DeliveryFactory(published=True)
    for message_id, content in (("evt_1", b"{}"), ("evt_2", b"no"), ("evt_3", b"no")):
        receive("payments", message_id, content, consumer=on_payment)
    Job.objects.filter(state="queued").update(state="succeeded", finished_at=clock.now())
    run(401)

    told = jobs("verify")[0].splitlines()[-1]

    assert told.endswith(
        "Pruned before, and taken into account: the content of 2 jobs, 1 event, all rows of 2 jobs, "
        "1 remembered message, 2 quarantined messages."
    )
