"""A job's story in plain English."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_jobs import clock
from django_jobs.models import Attempt, JobPayload, Worker
from django_jobs.operate.explain import Explanation, explain
from django_jobs.operate.history import as_dict, history_of
from django_jobs.store.pauses import pause
from tests.integration.operate.stories import WORKER, Story

pytestmark = pytest.mark.django_db

SECRET = "4111111111111111"


def told(story: Story) -> Explanation:
    """Explain the job of a story."""
    return explain(story.job, using="default")


def lines(story: Story, title: str) -> str:
    """Return one section as text."""
    return "\n".join(next(section for section in told(story).sections if section.title == title).lines)


def whole(story: Story) -> str:
    """Return all sections as text."""
    return "\n".join(line for section in told(story).sections for line in section.lines)


def worker(story: Story, **fields: Any) -> Worker:
    """A live worker that serves everything of the shop."""
    return Worker.objects.create(
        **{
            "id": WORKER,
            "name": "web-1:4711",
            "pid": 4711,
            "job_types": '["shop.charge_order"]',
            "started_at": story.now,
            "heartbeat_at": story.now + timedelta(minutes=10),
            **fields,
        }
    )


def test_intention_is_told() -> None:
    """Type, queue, payload, key, duplicates, caller and owner are told."""
    old = Story(key="order:7").claim().succeed().job
    story = Story(
        key="order:7", takes_over=old, subject="order:7", owner="billing", correlation_id="corr-1", priority=10
    ).duplicate()

    text = lines(story, "What was intended")

    assert "shop.charge_order (payload version 1), queue payments, priority 10, about order:7." in text
    assert 'Payload: {"order_id":7}' in text
    assert "Idempotency key order:7 in scope /shop.charge_order: live until 7 d after its end." in text
    assert f"It took the key over from job {old.pk}, whose time had run out." in text
    assert "answered with this job: 1 on record" in text
    assert "from inside a job (correlation id corr-1)" in text
    assert "Owner: billing." in text


def test_missing_intentions_are_told_as_missing() -> None:
    """No key, no owner, no payload row: each is said."""
    story = Story(useful_until=None)
    assert "has no idempotency key" in lines(story, "What was intended")
    assert "No owner is declared" in lines(story, "What was intended")
    assert "from outside of any job" in lines(story, "What was intended")

    JobPayload.objects.all().delete()

    assert "its row is missing" in lines(story, "What was intended")


@pytest.mark.parametrize(
    ("change", "said"),
    [({}, ": live until 20"), ({"ttl_seconds": 1.0}, ": expired at 20")],
)
def test_life_of_a_finished_jobs_key_is_told(change: dict[str, Any], said: str) -> None:
    """After its end a job's key has a date."""
    from django_jobs.models import IdempotencyKey

    story = Story(key="order:7").claim().succeed()
    IdempotencyKey.objects.update(**change)

    assert said in lines(story, "What was intended")


def test_key_that_went_to_another_job_is_told() -> None:
    """A finished job whose key expired and was taken says that it holds it no more."""
    old = Story(key="order:7").claim().succeed()
    Story(key="order:7", takes_over=old.job)

    assert "which it does not hold any more" in lines(old, "What was intended")


def test_secrets_are_masked_everywhere() -> None:
    """A card number in payload, error, effect and answer is shown nowhere, by explain and by show."""
    story = Story(arguments={"card": SECRET, "order_id": 7}).claim()
    effect = story.effect(request=f'{{"card":"{SECRET}"}}', result=f'{{"card":"{SECRET}"}}')
    effect.send().answer("unknown", reason=f"card={SECRET} failed").review()
    effect._set(review_reason=f"card={SECRET}")
    story.fail(error_class="permanent", message=f"card={SECRET} declined", dead="effect_review")
    Attempt.objects.update(traceback=f"card={SECRET}")

    assert SECRET not in whole(story)
    assert SECRET not in str(as_dict(history_of(story.job, using="default")))
    assert "[redacted]" in whole(story)


def test_long_payload_is_cut() -> None:
    """A long payload is told by its beginning and its length."""
    text = lines(Story(arguments={"note": "x" * 900}), "What was intended")

    assert "… (911 characters)" in text
    assert len(text) < 1200


@pytest.mark.parametrize(
    ("tell", "said"),
    [
        (lambda story: story, "Nobody has claimed it yet."),
        (lambda story: story.claim(), "still running after"),
        (lambda story: story.claim().succeed(), "succeeded after 1 s."),
        (lambda story: story.claim().fail(), "failed after 1 s (unknown): shop.PaymentError: no luck"),
        (lambda story: story.claim().release(), "released after 1 s."),
        (lambda story: story.claim().snooze(), "snoozed after 1 s."),
        (
            lambda story: story.claim().lose(),
            "lost after 1 s: never observed; may have succeeded (its process was ended by SIGKILL).",
        ),
        (lambda story: story.claim().lose("silent"), "may have succeeded (its worker stopped saying that it lives)."),
        (
            lambda story: story.claim().lose("expired"),
            "may have succeeded (its lease was over and it had not finished).",
        ),
        (lambda story: story.claim().lose().claim(alone="child"), "alone in its process"),
        (lambda story: story.claim(alone="worker"), "alone on its worker"),
        (lambda story: story.claim().fail(dead="age").replay().claim(), "Attempt 2 (generation 2):"),
    ],
)
def test_attempt_is_told(tell: Callable[[Story], Story], said: str) -> None:
    """Every kind of attempt says who had it and how it ended; a loss is told as what it is."""
    assert said in lines(tell(Story()), "Who claimed it")


def test_attempt_says_who_ran_it_and_what_came_late() -> None:
    """Worker, child, code, a run past the budget and refused writes are told."""
    story = Story().claim().fail(message="x" * 400)
    Attempt.objects.update(
        over_budget=True, refused_count=2, refused_operation="succeed", refused_at=story.now, worker_name=""
    )

    text = lines(story, "Who claimed it")

    assert f"worker {WORKER}, child 1, code build-1" in text
    assert "failed after 1 s, past its budget (unknown)" in text
    assert "2 late writes of it refused (the last, 'succeed', at 20" in text
    assert "nothing of that was accepted" in text
    assert "x" * 200 + "…" in text


def test_very_many_attempts_are_left_out_in_the_middle() -> None:
    """The first three and the last fifteen attempts are told, and how many are not."""
    story = Story()
    for _ in range(25):
        story.claim().release()

    text = lines(story, "Who claimed it").splitlines()

    assert len(text) == 19
    assert text[3] == "… 7 attempts left out; see 'manage.py jobs show'."
    assert (text[2][:9], text[4][:10]) == ("Attempt 3", "Attempt 11")


def test_effect_is_told_with_sends_and_questions() -> None:
    """State, requests, answers, request ids, questions, and who found out are told."""
    story = Story().claim()
    effect = story.effect(can_reconcile=True).send().answer("unknown", status=500, provider_request_id="req_7")
    effect.ask("not_found").send().answer("confirmed", replayed=True)

    text = lines(story, "What happened to each side effect")

    assert "Effect charge (order:7) at payments: applied, known since" in text
    assert "by the provider's answer (provider reference ch_1, provider request id req_1)" in text
    assert "Send 1 by attempt 1 at" in text
    assert "outcome unknown (status 500): no; provider request id req_7" in text
    assert "Asked by attempt 1 at" in text
    assert "not found (not final)" in text
    assert "confirmed, from the provider's memory of an earlier request with the same key" in text


@pytest.mark.parametrize(
    ("tell", "said"),
    [
        (lambda story: story.effect(), "planned; nothing was sent."),
        (lambda story: story.effect().send(), "no answer is recorded, so it may have been applied."),
        (lambda story: story.effect().send().answer("rejected"), "known not to have been applied."),
        (lambda story: story.effect().send().answer("unknown").ask("succeeded"), "by asking the provider"),
        (
            lambda story: story.effect(can_reconcile=True).send().answer("unknown").ask("succeeded", actor="anna"),
            "Asked by anna at",
        ),
        (lambda story: story.effect(dedupe="none").send().answer("unknown").review(), "Waits for a human: An earlier"),
        (
            lambda story: story.effect(dedupe="none").send().answer("unknown").abandon(),
            "Given up because: A lost effect is accepted.",
        ),
    ],
)
def test_effect_state_is_told(tell: Callable[[Story], Any], said: str) -> None:
    """Each state of an effect is told in words."""
    story = Story().claim()
    tell(story)

    assert said in lines(story, "What happened to each side effect")


def test_effect_shared_by_jobs_is_told_on_both() -> None:
    """The adopter says whose receipt it took, the owner who took it, and a foreign send whose it was."""
    first, second, third = Story().claim(), Story().claim(), Story().claim()
    effect = first.effect().send().answer("rejected")
    second.pass_time(timedelta(seconds=30))
    effect.send(second)
    effect.story = second
    effect.answer("confirmed")
    third.adopt(effect.row)

    assert f"Send 1 by attempt 1 of job {first.job.pk}" in lines(second, "What happened to each side effect")
    assert f"Job {third.job.pk} took its receipt at" in lines(second, "What happened to each side effect")
    assert f"applied by job {second.job.pk}; this job took its receipt" in lines(
        third, "What happened to each side effect"
    )
    assert lines(first, "What happened to each side effect") == "No side effect is recorded."


@pytest.mark.parametrize(
    ("tell", "said"),
    [
        (
            lambda story: story._set(state="scheduled", available_at=story.now + timedelta(days=1)),
            "It starts when it is due, at",
        ),
        (lambda story: story.claim().snooze(for_evidence=True), "It waits for evidence about a side effect since"),
        (lambda story: story, "It can start now; due since"),
        (lambda story: story.claim().fail(), "The next attempt is due at"),
        (lambda story: story.claim(), "It is running; its lease ends at"),
        (lambda story: story.claim(lease=timedelta(seconds=5)), "It is running past its lease, which ended at"),
        (lambda story: story.claim().succeed(), "Nothing: it succeeded at"),
        (lambda story: story.cancel(), "Nothing: it was cancelled at"),
        (
            lambda story: story.claim().fail(dead="unknown_budget"),
            "because it failed too often with errors of unknown class (unknown_budget).",
        ),
        (lambda story: story.claim().fail(dead="age").discard(), "Nothing: the dead letter was discarded at"),
        (lambda story: story.claim().lose(), "After losses it must run alone in its process."),
        (lambda story: story.claim().lose("silent").claim().lose("silent"), "must run alone on its worker."),
        (lambda story: story._set(useful_until=story.now + timedelta(days=1)), "If it has not started by"),
        (lambda story: story._set(state="failed", available_at=story.now), "The next attempt is due at"),
    ],
)
def test_next_is_told(tell: Callable[[Story], Story], said: str) -> None:
    """Each state says what is next and when, or why nothing is."""
    assert said in lines(tell(Story()), "What is next")


def test_dead_letter_tells_its_last_error() -> None:
    """A dead letter quotes the error that ended it."""
    text = lines(Story().claim().fail(message="card\nexpired", dead="unknown_budget"), "What is next")

    assert "Its last error: shop.PaymentError: card expired" in text


def test_dead_letter_of_the_present_code_is_told() -> None:
    """If the code here is what failed, a replay would only repeat the failure, and this is said."""
    from django_jobs.define import registry

    definition = registry.find("shop.charge_order")
    assert definition is not None
    story = Story().claim().fail(dead="unknown_budget")
    assert "same as the code that failed" not in lines(story, "What is next")

    Attempt.objects.update(code_version=definition.code_version())

    assert "The code here is the same as the code that failed." in lines(story, "What is next")


def test_holder_and_progress_are_told() -> None:
    """A running job names its worker, the last sign of it, and its progress."""
    story = Story().claim()
    assert "The worker that holds it has left no row." in lines(story, "What is next")
    worker(story, stopped_at=story.now)
    story._set(progress=3, progress_total=10)

    text = lines(story, "What is next")

    assert "Its worker web-1:4711 was last heard of" in text
    assert "and it has stopped" in text
    assert "Progress: 3 of 10." in text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (None, "No live worker serves queue 'payments'."),
        ({"queues": '["mail"]'}, "No live worker serves queue 'payments'."),
        ({"queues": '{"except": ["payments"]}'}, "No live worker serves queue 'payments'."),
        ({"heartbeat_at": None}, "No live worker serves queue 'payments'."),
        ({"job_types": "[]"}, "No live worker of queue 'payments' knows job type 'shop.charge_order'."),
        ({}, ""),
        ({"queues": '["payments"]'}, ""),
    ],
)
def test_obstacles_are_told(fields: dict[str, Any] | None, said: str) -> None:
    """A waiting job says whether a live worker serves its queue and knows its type."""
    story = Story()
    if fields is not None:
        worker(story, **{name: story.now if value is None else value for name, value in fields.items()})

    text = lines(story, "What is next")

    assert (said in text) if said else ("No live worker" not in text)


def test_pause_is_told_with_who_and_why() -> None:
    """A waiting job says which pause holds it back, of its queue or its type, and not one of others."""
    story = Story()
    for kind, name in (("queue", "payments"), ("type", "shop.charge_order"), ("queue", "mail"), ("type", "payments")):
        pause(kind, name, actor="ann", reason=f"provider is down ({kind})", using="default")

    text = lines(story, "What is next")

    assert "Queue 'payments' is paused by ann since" in text
    assert "Job type 'shop.charge_order' is paused by ann since" in text
    assert "provider is down (type)" in text
    assert text.count("is paused by") == 2


def test_end_of_a_pause_is_told() -> None:
    """So that nobody has to ask when it goes on."""
    story = Story()
    pause("queue", "payments", actor="ann", reason="why", until=clock.now() + timedelta(hours=2), using="default")

    assert "until 2" in lines(story, "What is next")


def test_full_queue_is_told(settings: Any) -> None:
    """A job behind a limit says how many run; one with room says nothing."""
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "QUEUES": {"payments": {"limit": 1}}}
    story = Story()
    assert "at most" not in lines(story, "What is next")

    Story().claim()

    assert "Queue 'payments' runs at most 1 at once, and 1 run now." in lines(story, "What is next")


def test_set_aside_is_told() -> None:
    """A job whose kind nobody may or can run says so."""
    story = Story(state="scheduled", lane="!shop.charge_order 1")

    assert "It is set aside: nobody may or can run 'shop.charge_order 1' now" in lines(story, "What is next")


def blind(story: Story) -> Story:
    """Let an effect stay unclear at a provider that has neither keys nor answers."""
    story.claim().effect(dedupe="none").send().answer("unknown")
    return story.fail(error_class="permanent", dead="effect_review")


def resent(story: Story) -> Story:
    """Let an effect stay unclear whose repetition the author accepts."""
    story.claim().effect(dedupe="none", on_ambiguous="resend").send().answer("unknown")
    return story.fail(dead="unknown_budget")


def charged(story: Story) -> Story:
    """Let a charge succeed before the job dies."""
    story.claim().effect().send().answer("confirmed")
    return story.fail(dead="unknown_budget")


@pytest.mark.parametrize(
    ("tell", "job_type", "verdict"),
    [
        (charged, "shop.charge_order", "YES: a replay cannot repeat anything that is recorded."),
        (blind, "shop.charge_order", "NO: a replay needs your decision first"),
        (resent, "shop.charge_order", "NOT FOR SURE: with a replay an effect may happen again"),
        (charged, "gone.type", "FOR EFFECTS YES: a replay repeats none that is recorded"),
        (lambda story: story.claim().lose(dead="poison"), "shop.note_order", "FOR ROWS YES: a replay repeats no row"),
        (lambda story: story, "shop.note_order", "YES: another attempt cannot repeat anything that is recorded."),
        (
            lambda story: story.claim().succeed(),
            "shop.note_order",
            "Only a dead letter can be replayed; this job is succeeded.",
        ),
    ],
)
def test_verdict_on_a_replay_is_told_first(tell: Callable[[Story], Story], job_type: str, verdict: str) -> None:
    """The first line says whether a replay is safe; the next ones say it per effect."""
    assert lines(tell(Story(job_type=job_type)), "Would a replay be safe").startswith(verdict)


def test_replay_is_told_per_effect() -> None:
    """Each effect has its line, with its class and its reason."""
    text = lines(charged(Story()), "Would a replay be safe")

    assert (
        "Effect charge (order:7) at payments: skip. The effect was applied by an earlier attempt of this job." in text
    )
    assert "This holds if the handler asks for the same requests again." in text


def test_explanation_costs_the_same_however_long_the_story() -> None:
    """Attempts, effects and sends are read in a fixed number of queries."""
    long = Story().claim()
    for number in range(5):
        long.effect(f"order:{number}").send().answer("unknown").send()
    short = Story().claim()
    short.effect("order:99").send()
    costs = []
    for story in (short, long):
        with CaptureQueriesContext(connection) as queries:
            explain(story.job, using="default")
        costs.append(len(queries))

    assert costs[0] == costs[1] <= 15


def test_decisions_are_told_with_who_and_why() -> None:
    """What people decided stands in the story, secrets masked; a job about which nobody decided has no such section."""
    story = Story().claim().fail(dead="age").decide("replay", reason=f"the card {SECRET} was declined", ticket="OPS-1")

    said = lines(story, "What people decided")

    assert "replay of generation 1 by ada for billing" in said
    assert "(OPS-1)" in said
    assert [row["action"] for row in as_dict(history_of(story.job, using="default"))["decisions"]] == ["replay"]
    assert "What people decided" not in [section.title for section in told(Story()).sections]
