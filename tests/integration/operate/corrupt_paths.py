"""Corruptions of the way that a job, a delivery or a decision took; each returns the ids that must be named."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import models

from django_jobs.domain.identity import fingerprint
from django_jobs.models import Attempt, Delivery, DeliveryAttempt, Job, OperatorAction, OutboxEvent, PrunedStretch
from tests.factories_outbox import DeliveryAttemptFactory, DeliveryFactory, OutboxEventFactory
from tests.integration.operate.corrupt_pruning import pruned_content
from tests.integration.operate.corruptions import corrupts, set_job, unguard
from tests.integration.operate.stories import SECOND, Story

HOUR = timedelta(hours=1)


def _decision(story: Story, **columns: Any) -> set[Any]:
    row = OperatorAction.objects.filter(job_id=story.job.pk).latest("id")
    assert models.QuerySet(OperatorAction).filter(pk=row.pk).update(**columns) == 1
    return {row.pk}


@corrupts("J13")
def second_owner_before_the_first_had_ended() -> set[Any]:
    story = Story().claim().release().claim()
    Attempt.objects.filter(number=1).update(finished_at=story.now + SECOND)
    return {story.job.pk}


@corrupts("J13")
def attempt_that_ended_before_it_began() -> set[Any]:
    story = Story().claim().release().claim()
    Attempt.objects.filter(number=1).update(started_at=story.now - SECOND / 2)
    return {story.job.pk}


@corrupts("J17")
def waits_for_a_retry_of_nothing() -> set[Any]:
    return set_job(Story(), state="failed")


@corrupts("J17")
def attempt_went_on_after_the_job_was_dead() -> set[Any]:
    story = Story().claim().fail(error_class="permanent", dead="permanent")
    return set_job(story, dead_at=story.now - SECOND)


@corrupts("J17")
def attempt_went_on_after_the_success() -> set[Any]:
    story = Story().claim().succeed()
    return set_job(story, finished_at=story.now - SECOND)


@corrupts("A3")
def reason_that_was_taken_away() -> set[Any]:
    story = Story().cancel()
    unguard(OperatorAction)
    return _decision(story, reason="")


@corrupts("A3")
def plan_that_was_written_anew() -> set[Any]:
    return _decision(Story().cancel(), plan='{"action":"cancel","effects":[]}')


@corrupts("A3")
def digest_of_another_plan() -> set[Any]:
    other = fingerprint('{"action":"cancel"}')
    return _decision(Story().cancel(), plan_digest=other, given_digest=other)


@corrupts("A4")
def decision_about_a_job_to_come() -> set[Any]:
    return _decision(Story().cancel(), from_revision=2)


@corrupts("A4")
def decision_in_a_generation_to_come() -> set[Any]:
    return _decision(Story().cancel(), from_generation=2)


@corrupts("A4")
def decisions_against_time() -> set[Any]:
    story = Story().claim().decide("show_payload", from_revision=5).decide("cancel", from_revision=4)
    Job.objects.filter(pk=story.job.pk).update(revision=9)
    return _decision(story, from_revision=4)


@corrupts("A4")
def cancelled_after_the_end() -> set[Any]:
    return _decision(Story().cancel(), from_state="succeeded")


@corrupts("A4")
def discarded_while_it_waited() -> set[Any]:
    story = Story().claim().fail(error_class="permanent", dead="permanent").discard()
    return _decision(story, from_state="queued")


@corrupts("A4")
def run_now_while_it_ran() -> set[Any]:
    return _decision(Story().claim().decide("run_now"), from_state="running")


@corrupts("A4")
def lease_ended_that_nobody_had() -> set[Any]:
    return _decision(Story().decide("expire_lease"), from_state="queued")


@corrupts("L1")
def lease_that_nobody_judged() -> set[Any]:
    return {Story(ago=2 * HOUR + 10 * SECOND).claim(lease=HOUR - SECOND).job.pk}


@corrupts("L2")
def delivery_that_nobody_judged() -> set[Any]:
    delivery = DeliveryFactory(claimed=True)
    long_ago = delivery.created_at - HOUR - 10 * SECOND
    Delivery.objects.filter(pk=delivery.pk).update(lease_expires_at=long_ago)
    return {delivery.pk}


@corrupts("O8")
def event_that_was_written_anew() -> set[Any]:
    event = OutboxEventFactory()
    elsewhere = OutboxEventFactory(
        data="", dataref="https://files.example.com/1", data_digest=fingerprint('{"large":1}')
    )
    OutboxEvent.objects.exclude(pk=elsewhere.pk).update(data='{"amount":1}')
    return {event.pk}


@corrupts("O9")
def delivered_twice_at_once() -> set[Any]:
    delivery = DeliveryFactory(published=True)
    first = DeliveryAttempt.objects.get(delivery=delivery)
    Delivery.objects.filter(pk=delivery.pk).update(fence=2)
    DeliveryAttemptFactory(
        delivery=delivery, number=2, outcome="confirmed", started_at=first.started_at, finished_at=first.finished_at
    )
    DeliveryAttempt.objects.filter(pk=first.pk).update(outcome="nacked", finished_at=first.started_at + SECOND)
    return {delivery.pk}


@corrupts("R6")
def pruned_before_its_time() -> set[Any]:
    pruned_content()
    stretch = PrunedStretch.objects.get()
    PrunedStretch.objects.update(finished_before=stretch.created_at - timedelta(days=60))
    return {stretch.pk}
