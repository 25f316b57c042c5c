"""Corruptions of cancelled jobs, of requests to cancel and of human judgements; each returns the ids to be named."""

from __future__ import annotations

import uuid
from typing import Any

from django_jobs.models import Attempt, CancelRequest, SideEffect
from tests.integration.operate.cancelled_stories import ask_to_cancel
from tests.integration.operate.corruptions import corrupts, set_job
from tests.integration.operate.stories import Story


@corrupts("J15")
def cancelled_by_nobody() -> set[Any]:
    story = Story()
    return set_job(story, state="cancelled", finished_at=story.now)


@corrupts("J15")
def dead_for_a_cancel_of_nobody() -> set[Any]:
    return {Story().claim().fail(dead="cancelled").job.pk}


@corrupts("J15")
def cancelled_although_it_may_have_charged() -> set[Any]:
    story = Story().claim()
    story.effect().send().answer("unknown")
    story.release().cancel()
    return {story.job.pk}


@corrupts("J15")
def cancelled_attempt_of_a_waiting_job() -> set[Any]:
    story = Story().claim().release()
    Attempt.objects.filter(job_id=story.job.pk).update(outcome="cancelled")
    return {story.job.pk}


@corrupts("J16")
def request_for_a_generation_to_come() -> set[Any]:
    request = ask_to_cancel(Story().claim())
    CancelRequest.objects.update(generation=2)
    return {request.pk}


@corrupts("J16")
def request_of_nobody() -> set[Any]:
    request = ask_to_cancel(Story().claim())
    CancelRequest.objects.update(action_id=uuid.uuid4())
    return {request.pk}


@corrupts("J16")
def request_without_job() -> set[Any]:
    request = ask_to_cancel(Story().claim())
    CancelRequest.objects.update(job_id=uuid.uuid4())
    return {request.pk}


@corrupts("E20")
def judged_without_audit() -> set[Any]:
    told = Story().claim().effect().send().answer("unknown").ask("succeeded", actor="ann")
    told.row.reconciliations.update(actor="eve")
    return {told.row.pk}


@corrupts("E20")
def resolved_by_an_operator_who_said_nothing() -> set[Any]:
    told = Story().claim().effect().send().answer("confirmed")
    SideEffect.objects.filter(pk=told.row.pk).update(resolved_by="operator")
    return {told.row.pk}
