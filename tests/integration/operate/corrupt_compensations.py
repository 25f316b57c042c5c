"""Corruptions of compensations; each returns the ids that must be named."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from django_jobs.domain.compensation import COMPENSATION_EFFECT, taken_back_key
from django_jobs.models import Compensation, Job, SideEffect
from tests.integration.operate.corruptions import corrupts, unguard
from tests.integration.operate.stories import Story
from tests.integration.operate.taken_back import TakenBack, charged, settled


@corrupts("C1")
def effect_that_was_never_applied_is_taken_back() -> set[Any]:
    story = Story().claim()
    told = story.effect().send().answer("rejected")
    story.fail(error_class="permanent", dead="permanent")
    return {TakenBack(told).row.pk}


@corrupts("C1")
def effect_is_taken_back_twice() -> set[Any]:
    told = charged()
    unguard(Compensation)
    return {TakenBack(told).row.pk, TakenBack(told).row.pk}


@corrupts("C1")
def nobody_decided() -> set[Any]:
    taken = TakenBack(charged())
    Compensation.objects.update(action_id=uuid.uuid4())
    return {taken.row.pk}


@corrupts("C1")
def decision_was_about_another_effect() -> set[Any]:
    taken, other = TakenBack(charged()), TakenBack(charged())
    Compensation.objects.filter(pk=taken.row.pk).update(action_id=other.action.pk)
    return {taken.row.pk}


@corrupts("C1")
def job_is_of_another_type() -> set[Any]:
    taken = TakenBack(charged())
    Job.objects.filter(pk=taken.story.job.pk).update(job_type="shop.refund")
    return {taken.row.pk}


@corrupts("C1")
def job_is_gone() -> set[Any]:
    taken = TakenBack(charged())
    Compensation.objects.update(job_id=uuid.uuid4())
    return {taken.row.pk}


@corrupts("C1")
def original_works_again_while_it_is_taken_back() -> set[Any]:
    taken = TakenBack(charged())
    taken.effect.story.replay()
    return {taken.row.pk}


@corrupts("C1")
def effect_is_gone() -> set[Any]:
    taken = TakenBack(charged())
    Compensation.objects.update(effect_id=uuid.uuid4())
    return {taken.row.pk}


@corrupts("C2")
def job_succeeded_and_its_row_is_open() -> set[Any]:
    taken = TakenBack(charged()).succeed()
    Compensation.objects.update(outcome="open", closed_at=None)
    return {taken.story.job.pk}


@corrupts("C2")
def job_was_discarded_and_its_row_is_open() -> set[Any]:
    taken = TakenBack(charged()).give_up()
    Compensation.objects.update(outcome="open", closed_at=None)
    return {taken.story.job.pk}


@corrupts("C2")
def row_was_given_up_while_its_job_waits() -> set[Any]:
    taken = TakenBack(charged())
    Compensation.objects.update(outcome="void", closed_at=taken.story.now)
    return {taken.story.job.pk}


@corrupts("C2")
def job_succeeded_without_a_row() -> set[Any]:
    taken = TakenBack(charged()).succeed()
    Compensation.objects.all().delete()
    return {taken.story.job.pk}


@corrupts("C3")
def something_applied_is_left() -> set[Any]:
    told = charged()
    story = told.story
    TakenBack(told).succeed()
    other = story.effect("left").row
    SideEffect.objects.filter(pk=other.pk).update(state="succeeded", resolved_by="human", resolved_at=story.now)
    return {settled(told).story.job.pk}


@corrupts("C3")
def nothing_was_taken_back() -> set[Any]:
    return {settled(charged()).story.job.pk}


@corrupts("C5")
def given_up_after_it_was_applied() -> set[Any]:
    told = charged()
    taken = TakenBack(told)
    taken.story.effect(taken_back_key(told.row.pk), name=COMPENSATION_EFFECT).send().answer("confirmed")
    return {taken.give_up().row.pk}


@corrupts("C5")
def second_one_given_up_although_the_first_was_applied() -> set[Any]:
    told = charged()
    first, second = TakenBack(told).give_up(), TakenBack(told)
    refund = first.story.effect(taken_back_key(told.row.pk), name=COMPENSATION_EFFECT)
    refund._set(state="succeeded", resolved_by="operator", resolved_at=first.story.now, provider_ref="re_1")
    second.story.pass_time(timedelta(minutes=1))
    second.give_up()
    return {second.row.pk}


@corrupts("C4")
def succeeded_on_a_receipt_that_was_being_taken_back() -> set[Any]:
    told = charged()
    TakenBack(told)
    adopter = Story(ago=timedelta(minutes=5)).claim().adopt(told.row).succeed()
    return {adopter.job.pk}
