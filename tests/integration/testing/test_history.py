"""Histories: a sound one has no finding, and each broken promise is found under its own name alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_jobs import clock
from django_jobs.domain.ids import uuid7
from django_jobs.models import Attempt, InboxMessage, Job, JobPayload
from django_jobs.testing import History
from tests.factories_outbox import OutboxEventFactory
from tests.integration.operate.stories import SECOND, EffectStory, Story

pytestmark = pytest.mark.django_db

Broken = Callable[[History], Any]
BROKEN: dict[str, list[Broken]] = {}


def breaks(name: str) -> Callable[[Broken], Broken]:
    """Register something that breaks this promise and no other."""

    def register(function: Broken) -> Broken:
        BROKEN.setdefault(name, []).append(function)
        return function

    return register


def charged(history: History, key: str = "order:1", *, applied: int = 1) -> EffectStory:
    """Let a job charge an order, and the provider write it into its book."""
    story = Story(key=key).claim()
    effect = story.effect(key).send()
    sent = effect.sends[-1]
    history.told("ok", story.job.pk, key=key, body="{}")
    history.noted(sent.provider_key, sent.started_at, "call")
    for _ in range(applied):
        history.noted(sent.provider_key, sent.started_at, "applied")
    effect.answer("confirmed")
    story.succeed()
    return effect


def message(story: Story, message_id: str) -> InboxMessage:
    """Let a consumer take a message, with this job."""
    return InboxMessage.objects.create(
        consumer="shop", source="payments", message_id=message_id, data_digest="v1:", job_id=story.job.pk,
        received_at=story.now, keep_until=story.now + timedelta(days=30),
    )  # fmt: skip


def sound() -> History:
    """Return a history in which everything happened that may happen."""
    history = History(limits={"payments": 9})
    charged(history)
    history.told("fail", uuid7())
    history.told("unknown", uuid7())
    lost = Story().claim()
    history.told("ok", lost.job.pk)
    history.killed(lost.now + SECOND / 2)
    lost.lose().claim(alone="child").succeed()
    waits = Story(state="scheduled", available_at=clock.now() + timedelta(hours=1))
    history.told("ok", waits.job.pk)
    asked = Story().claim()
    history.told("ok", asked.job.pk)
    effect = asked.effect("order:2", dedupe="none", can_reconcile=True).send()
    first = effect.sends[-1]
    history.noted(first.provider_key, first.started_at, "call")
    effect.answer("unknown").ask("not_found", final=True)
    history.noted(first.provider_key, asked.now, "lookup")
    second = effect.send(epoch=1).sends[-1]
    history.noted(second.provider_key, second.started_at, "call")
    history.noted(second.provider_key, second.started_at, "applied")
    effect.answer("confirmed")
    asked.succeed()
    taken = Story().claim()
    history.told("ok", taken.job.pk)
    message(taken, "evt_0")
    taken.succeed()
    history.acted("shop", "evt_0")
    OutboxEventFactory(type="shop.paid", subject="order:1")
    history.committed("shop.paid", ["order:1"])
    return history


def test_sound_history_has_no_finding() -> None:
    """Success, loss and retry, a question and a second key, an event and a message: nothing is found."""
    history = sound()

    assert history.check() == []
    history.assert_sound()


@breaks("I1")
def acknowledged_and_gone(history: History) -> None:
    history.told("ok", uuid7())


@breaks("I1")
def failed_and_there(history: History) -> None:
    history.told("fail", Story(available_at=clock.now() + timedelta(hours=1)).job.pk)


@breaks("I1")
def due_and_never_run(history: History) -> None:
    history.told("ok", Story().job.pk)


@breaks("I1")
def held_past_its_lease(history: History) -> None:
    history.told("ok", Story(ago=timedelta(minutes=5)).claim(lease=SECOND).job.pk)


@breaks("I4")
def convicted_and_alive(history: History) -> None:
    Story().claim().lose().claim(alone="child").lose().claim(alone="child").lose()


@breaks("I5")
def applied_twice(history: History) -> None:
    charged(history, "order:9", applied=2)


@breaks("I5")
def recorded_and_never_applied(history: History) -> None:
    charged(history, "order:9", applied=0)


@breaks("I5")
def applied_without_an_intent(history: History) -> None:
    history.noted("out of the ledger", clock.now(), "applied")


@breaks("I5")
def called_after_it_was_confirmed(history: History) -> None:
    effect = charged(history, "order:9")
    history.noted(effect.sends[-1].provider_key, clock.now(), "call")


@breaks("I5")
def another_key_and_nobody_asked(history: History) -> None:
    effect = Story(ago=timedelta(minutes=5)).claim().effect("order:9").send()
    effect.answer("unknown").send(epoch=1).answer("unknown")
    for send in effect.sends:
        history.noted(send.provider_key, send.started_at, "call")


@breaks("I6")
def committed_without_an_event(history: History) -> None:
    history.committed("shop.paid", ["order:9"])


@breaks("I6")
def event_of_nothing(history: History) -> None:
    OutboxEventFactory(type="shop.paid", subject="order:9")


@breaks("I6")
def two_events_of_one_row(history: History) -> None:
    OutboxEventFactory(type="shop.paid", subject="order:1")


@breaks("I7")
def acted_twice(history: History) -> None:
    history.acted("shop", "evt_0")


@breaks("I7")
def succeeded_and_never_acted(history: History) -> None:
    message(Story().claim().succeed(), "evt_9")


@breaks("I8")
def two_jobs_of_one_key(history: History) -> None:
    for _ in range(2):
        history.told("ok", Story().claim().succeed().job.pk, key="order:9")


@breaks("I8")
def other_body_taken_for_the_same(history: History) -> None:
    job = Story().claim().succeed().job
    history.told("ok", job.pk, key="order:9", body="{}")
    history.told("ok", job.pk, key="order:9", body='{"amount":1}')


@breaks("I10")
def more_than_the_limit(history: History) -> None:
    history.limits = {"payments": 1}
    Attempt.objects.filter(outcome="succeeded").update(finished_at=clock.now())


@breaks("I12")
def stood_still_after_a_kill(history: History) -> None:
    story = Story().claim()
    history.killed(story.now)
    story.pass_time(timedelta(minutes=1))
    story.lose().claim(alone="child").succeed()


@breaks("I13")
def counted_too_much(history: History) -> None:
    many = Attempt.objects.filter(outcome="succeeded").count()
    history.scrape = f'django_jobs_attempts_total{{outcome="succeeded",queue="payments"}} {many + 1}\n' + losses()


@breaks("I13")
def backlog_that_is_not_there(history: History) -> None:
    many = Attempt.objects.filter(outcome="succeeded").count()
    waiting = Job.objects.filter(state="scheduled").count()
    history.scrape = (
        f'django_jobs_attempts_total{{outcome="succeeded"}} {many}.0\n{losses()}'
        f'django_jobs_backlog_jobs{{state="scheduled"}} {waiting}\ndjango_jobs_backlog_jobs{{state="queued"}} 5\n'
    )


def losses() -> str:
    """Return the true lines about losses."""
    return f'django_jobs_lost_attempts_total{{cause="exit"}} {Attempt.objects.filter(loss_cause="exit").count()}\n'


CASES = [(name, each) for name, listed in BROKEN.items() for each in listed]


@pytest.mark.parametrize(("name", "broken"), CASES, ids=[f"{name}-{each.__name__}" for name, each in CASES])
def test_broken_promise_is_found_under_its_name(name: str, broken: Broken) -> None:
    """Beside everything that is sound, each corruption is found, in one sentence, and under no other name."""
    history = sound()
    broken(history)

    found = history.check()

    assert {item.invariant for item in found} == {name}
    assert all(item.text.endswith(".") for item in found)
    with pytest.raises(AssertionError, match=f"{name}: "):
        history.assert_sound()


def test_true_scrape_is_believed() -> None:
    """A scrape that tells what the rows tell has no finding."""
    history = sound()
    many = Attempt.objects.filter(outcome="succeeded").count()
    waiting = Job.objects.filter(state="scheduled").count()
    history.scrape = (
        f'django_jobs_attempts_total{{outcome="succeeded"}} {many}\n{losses()}'
        f'django_jobs_backlog_jobs{{state="scheduled"}} {waiting}\n'
    )

    assert history.check() == []


def test_key_that_was_taken_over_names_its_former_job() -> None:
    """After its expiry a key may be another job's, which says whose it was."""
    history = sound()
    old, new = Story().claim().succeed().job, Story().claim().succeed().job
    JobPayload.objects.filter(pk=new.pk).update(previous_job_id=old.pk)
    for job in (old, new):
        history.told("ok", job.pk, key="order:9")

    assert history.check() == []


def test_each_look_has_something_that_breaks_it() -> None:
    """No look is believed that never found anything."""
    from django_jobs.testing.history_checks import CHECKS

    assert sorted(BROKEN) == sorted(name for name, _ in CHECKS)
