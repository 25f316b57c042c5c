"""Corruptions of effects, sends, answers, steps and of what rows refer to; each returns the ids that must be named."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from django_jobs.domain.identity import fingerprint
from django_jobs.models import (
    Attempt,
    DuplicateEnqueue,
    EffectAdoption,
    EffectStake,
    Job,
    JobStep,
    Reconciliation,
    Send,
    SideEffect,
)
from tests.integration.operate.corruptions import corrupts, unguard
from tests.integration.operate.stories import Story


@corrupts("E1")
def confirmed_send_of_an_ambiguous_effect() -> set[Any]:
    told = Story().claim().effect().send().answer("unknown")
    Send.objects.update(outcome="confirmed")
    return {told.row.pk}


@corrupts("E1")
def open_send_of_a_rejected_effect() -> set[Any]:
    told = Story().claim().effect().send()
    SideEffect.objects.update(state="rejected")
    return {told.row.pk}


@corrupts("E1")
def success_without_evidence() -> set[Any]:
    told = Story().claim().effect().send().answer("unknown")
    SideEffect.objects.update(state="succeeded", resolved_by="send", resolved_at=told.story.now)
    return {told.row.pk}


@corrupts("E1")
def sent_effect_is_called_planned() -> set[Any]:
    told = Story().claim().effect().send().answer("rejected")
    SideEffect.objects.update(state="planned")
    return {told.row.pk}


@corrupts("E1")
def found_effect_is_called_ambiguous() -> set[Any]:
    told = Story().claim().effect(can_reconcile=True).send().answer("unknown").ask("succeeded")
    SideEffect.objects.update(state="ambiguous", resolved_by="", resolved_at=None)
    return {told.row.pk}


@corrupts("E2")
def two_open_sends() -> set[Any]:
    told = Story().claim().effect().send().send()
    Send.objects.update(outcome=None, finished_at=None)
    return {told.row.pk}


@corrupts("E3")
def sent_after_success() -> set[Any]:
    story = Story().claim()
    told = story.effect().send().answer("confirmed")
    resolved = told.row.resolved_at
    told.send().answer("confirmed")
    SideEffect.objects.update(resolved_at=resolved)
    return {told.row.pk}


@corrupts("E3")
def sent_after_it_was_given_up() -> set[Any]:
    story = Story().claim()
    told = story.effect(on_ambiguous="resend", dedupe="none").send().answer("unknown").abandon()
    resolved = told.row.resolved_at
    unguard(SideEffect)
    told.send()
    SideEffect.objects.update(state="abandoned", resolved_at=resolved, resolved_by="policy")
    return {told.row.pk}


@corrupts("E4")
def success_with_an_open_effect() -> set[Any]:
    story = Story().claim()
    story.effect().send().answer("unknown")
    story.succeed()
    return {story.job.pk}


@corrupts("E5")
def two_requests_under_one_key() -> set[Any]:
    told = Story().claim().effect().send().answer("unknown").send()
    Send.objects.filter(number=1).update(request_digest=fingerprint("other"))
    return {told.row.pk}


@corrupts("E5")
def two_keys_in_one_epoch() -> set[Any]:
    told = Story().claim().effect().send().answer("unknown").send()
    Send.objects.filter(number=1).update(provider_key="dj1_other")
    return {told.row.pk}


@corrupts("E5")
def epoch_ran_ahead_of_the_effect() -> set[Any]:
    told = Story().claim().effect().send().answer("rejected").send(epoch=1)
    SideEffect.objects.update(epoch=0)
    return {told.row.pk}


@corrupts("E6")
def new_key_after_an_unclear_send() -> set[Any]:
    return {Story().claim().effect(on_ambiguous="resend").send().answer("unknown").send(epoch=1).row.pk}


@corrupts("E6")
def old_key_after_a_new_one() -> set[Any]:
    told = Story().claim().effect().send().answer("rejected").send(epoch=1).answer("rejected").send(epoch=0)
    SideEffect.objects.update(epoch=1)
    return {told.row.pk}


@corrupts("E7")
def resent_without_a_key() -> set[Any]:
    return {Story().claim().effect(dedupe="none").send().answer("unknown").send().row.pk}


@corrupts("E7")
def resent_after_the_key_had_expired() -> set[Any]:
    story = Story(ago=timedelta(days=3)).claim(lease=timedelta(days=2))
    told = story.effect().send().answer("unknown")
    story.pass_time(timedelta(hours=24))
    return {told.send().row.pk}


@corrupts("E7")
def resent_under_another_key() -> set[Any]:
    return {Story().claim().effect().send().answer("unknown").send(epoch=1).row.pk}


@corrupts("E8")
def send_of_another_jobs_attempt() -> set[Any]:
    story, other = Story().claim(), Story().claim()
    told = story.effect().send()
    Send.objects.update(attempt_id=other.job.attempt_id)
    return {told.sends[0].pk}


@corrupts("E8")
def send_without_attempt() -> set[Any]:
    told = Story().claim().effect().send()
    Send.objects.update(attempt_id=uuid.uuid4())
    return {told.sends[0].pk}


@corrupts("E8")
def send_after_the_attempt_had_ended() -> set[Any]:
    story = Story().claim()
    told = story.effect().send()
    story.lose()
    Send.objects.update(
        started_at=story.now + timedelta(seconds=1),
        deadline_at=story.now + timedelta(seconds=9),
        settled_at=story.now + timedelta(seconds=9),
    )
    return {told.sends[0].pk}


@corrupts("E8")
def send_with_another_number() -> set[Any]:
    told = Story().claim().effect().send()
    Send.objects.update(fence=2)
    return {told.sends[0].pk}


@corrupts("E9")
def not_applied_without_an_answer() -> set[Any]:
    told = Story().claim().effect().send().answer("not_applied")
    return {told.row.pk}


@corrupts("E9")
def not_found_before_the_send_had_settled() -> set[Any]:
    told = Story().claim().effect(dedupe="none").send(settle=timedelta(minutes=5)).answer("unknown")
    return {told.ask("not_found", final=True).row.pk}


@corrupts("E9")
def final_answer_beside_an_unsettled_send() -> set[Any]:
    told = Story().claim().effect().send(settle=timedelta(minutes=5)).answer("unknown").ask("not_found")
    Reconciliation.objects.update(is_final=True)
    return {told.row.pk}


@corrupts("E10")
def send_is_missing() -> set[Any]:
    told = Story().claim().effect().send().answer("unknown").send()
    Send.objects.filter(number=1).delete()
    return {told.row.pk}


@corrupts("E11")
def effect_of_somebody_who_did_not_send() -> set[Any]:
    told = Story().claim().effect().send()
    SideEffect.objects.update(job_id=Story().job.pk)
    return {told.row.pk}


@corrupts("E12")
def success_with_a_required_effect_rejected() -> set[Any]:
    story = Story().claim()
    story.effect().send().answer("rejected")
    story.succeed()
    return {story.job.pk}


@corrupts("E12")
def success_with_a_required_effect_left_to_a_job_that_failed() -> set[Any]:
    story, other = Story().claim(), Story().claim()
    other.pass_time()
    story.effect().send().answer("rejected").send(other).answer("rejected")
    story.pass_time(timedelta(minutes=1))
    story.succeed()
    return {story.job.pk}


@corrupts("E16")
def former_sender_is_forgotten() -> set[Any]:
    story, other = Story().claim(), Story().claim()
    told = story.effect().send().answer("rejected").send(other)
    EffectStake.objects.all().delete()
    return {told.row.pk}


@corrupts("E16")
def former_sender_is_called_an_asker() -> set[Any]:
    story, other = Story().claim(), Story().claim()
    told = story.effect().send().answer("rejected").send(other)
    EffectStake.objects.update(owned=False)
    return {told.row.pk}


@corrupts("E16")
def stake_of_another_jobs_attempt() -> set[Any]:
    story, other = Story().claim(), Story().claim()
    told = story.effect().send().answer("rejected").send(other)
    EffectStake.objects.update(attempt_id=other.job.attempt_id)
    return {told.row.pk}


@corrupts("E16")
def asker_without_an_attempt() -> set[Any]:
    told, asker = Story().claim().effect().send(), Story().claim()
    EffectStake.objects.create(effect=told.row, job=asker.job, created_at=asker.now)
    return {told.row.pk}


@corrupts("E13")
def adopted_although_rejected() -> set[Any]:
    told = Story().claim().effect().send().answer("rejected")
    Story().claim().adopt(told.row)
    return {told.row.pk}


@corrupts("E13")
def adopted_by_its_owner() -> set[Any]:
    story = Story().claim()
    told = story.effect().send().answer("confirmed")
    story.adopt(told.row)
    return {told.row.pk}


@corrupts("E13")
def adopted_by_nobody() -> set[Any]:
    told = Story().claim().effect().send().answer("confirmed")
    Story().claim().adopt(told.row)
    EffectAdoption.objects.update(attempt_id=uuid.uuid4())
    return {told.row.pk}


@corrupts("E14")
def success_by_nobody() -> set[Any]:
    told = Story().claim().effect().send().answer("confirmed")
    unguard(SideEffect)
    SideEffect.objects.update(resolved_by="")
    return {told.row.pk}


@corrupts("E14")
def given_up_without_a_reason() -> set[Any]:
    told = Story().claim().effect(dedupe="none").send().answer("unknown").abandon()
    SideEffect.objects.update(review_reason="")
    return {told.row.pk}


@corrupts("E14")
def given_up_without_a_send() -> set[Any]:
    return {Story().claim().effect().abandon().row.pk}


@corrupts("E14")
def open_effect_with_an_end() -> set[Any]:
    told = Story().claim().effect().send()
    unguard(SideEffect)
    SideEffect.objects.update(resolved_at=told.story.now)
    return {told.row.pk}


@corrupts("E15")
def key_shared_by_two_effects() -> set[Any]:
    first, second = Story().claim().effect("order:1").send(), Story().claim().effect("order:2").send()
    Send.objects.update(provider_key="dj1_same")
    return {first.row.pk, second.row.pk}


@corrupts("E15")
def one_business_act_twice() -> set[Any]:
    first, second = Story().claim().effect("order:1"), Story().claim().effect("order:2")
    unguard(SideEffect)
    SideEffect.objects.update(business_key="order:1")
    return {first.row.pk, second.row.pk}


@corrupts("S1")
def step_of_nobody() -> set[Any]:
    Story().claim().step()
    JobStep.objects.update(attempt_id=uuid.uuid4())
    return {JobStep.objects.get().pk}


@corrupts("S1")
def step_with_another_number() -> set[Any]:
    Story().claim().step()
    JobStep.objects.update(fence=9)
    return {JobStep.objects.get().pk}


@corrupts("R1")
def job_is_gone() -> set[Any]:
    story, owner = Story(key="order:1").duplicate().claim().step(), Story().claim()
    story.adopt(owner.effect("order:1").send().answer("confirmed").row)
    effect = story.effect("order:2")
    effect.leave(owner)
    Job.objects.filter(pk=story.job.pk).delete()
    rows = [Attempt.objects.get(job_id=story.job.pk), JobStep.objects.get(), DuplicateEnqueue.objects.get()]
    return {
        story.job.pk,
        effect.row.pk,
        EffectAdoption.objects.get().pk,
        EffectStake.objects.get().pk,
        *(row.pk for row in rows),
    }


@corrupts("R2")
def effect_is_gone() -> set[Any]:
    owner, adopter = Story().claim(), Story().claim()
    told = owner.effect().send().answer("unknown").ask("succeeded")
    adopter.adopt(told.row)
    told.leave(adopter)
    SideEffect.objects.all().delete()
    rows = [Reconciliation.objects.get(), EffectAdoption.objects.get(), EffectStake.objects.get()]
    return {told.sends[0].pk, *(row.pk for row in rows)}


@corrupts("R2")
def question_of_nobody() -> set[Any]:
    Story().claim().effect().send().answer("unknown").ask("pending", actor="anna")
    Reconciliation.objects.update(actor="")
    return {Reconciliation.objects.get().pk}


@corrupts("R2")
def question_of_an_unknown_attempt() -> set[Any]:
    Story().claim().effect().send().answer("unknown").ask("pending")
    Reconciliation.objects.update(attempt_id=uuid.uuid4())
    return {Reconciliation.objects.get().pk}


@corrupts("E5")
def two_requests_under_an_older_key() -> set[Any]:
    told = Story().claim().effect().send().answer("rejected").send().answer("rejected").send(epoch=1)
    Send.objects.filter(number=1).update(request_digest=fingerprint("other"))
    return {told.row.pk}


@corrupts("E5")
def effect_shows_another_request() -> set[Any]:
    told = Story().claim().effect().send()
    SideEffect.objects.update(request_digest=fingerprint("other"))
    return {told.row.pk}


@corrupts("E6")
def new_key_beside_an_open_send() -> set[Any]:
    told = Story().claim().effect().send().send(epoch=1).answer("rejected")
    Send.objects.filter(number=1).update(outcome=None, finished_at=None)
    return {told.row.pk}


@corrupts("E6")
def old_key_used_again_and_rejected() -> set[Any]:
    told = Story().claim().effect().send().answer("rejected").send(epoch=1).answer("rejected").send(epoch=0)
    told.answer("rejected")
    SideEffect.objects.update(epoch=1)
    return {told.row.pk}


@corrupts("E8")
def send_before_the_attempt_began() -> set[Any]:
    story = Story().claim()
    told = story.effect().send()
    Send.objects.update(started_at=story.now - timedelta(minutes=1))
    return {told.sends[0].pk}


@corrupts("E9")
def not_applied_after_an_answer_that_was_not_final() -> set[Any]:
    told = Story().claim().effect().send().answer("unknown").ask("not_found", final=True)
    Reconciliation.objects.update(is_final=False)
    return {told.row.pk}


@corrupts("E9")
def final_answer_beside_an_open_send() -> set[Any]:
    told = Story().claim().effect().send(settle=timedelta(minutes=5)).ask("not_found")
    Reconciliation.objects.update(is_final=True)
    return {told.row.pk}


@corrupts("E10")
def send_in_the_middle_is_missing() -> set[Any]:
    told = Story().claim().effect().send().answer("unknown").send().answer("unknown").send()
    Send.objects.filter(number=2).delete()
    return {told.row.pk}


@corrupts("E10")
def sends_begin_at_zero() -> set[Any]:
    told = Story().claim().effect().send().answer("unknown").send()
    Send.objects.filter(number=1).update(number=0)
    return {told.row.pk}


@corrupts("E11")
def short_effect_of_somebody_who_did_not_send() -> set[Any]:
    Story().claim().effect("order:3").send().send()
    told = Story().claim().effect().send()
    SideEffect.objects.filter(pk=told.row.pk).update(job_id=Story().job.pk)
    return {told.row.pk}


@corrupts("E13")
def adopted_by_an_attempt_of_another_job() -> set[Any]:
    owner = Story().claim()
    told = owner.effect().send().answer("confirmed")
    Story().claim().adopt(told.row)
    EffectAdoption.objects.update(attempt_id=owner.job.attempt_id)
    return {told.row.pk}


@corrupts("E14")
def success_at_no_time() -> set[Any]:
    told = Story().claim().effect().send().answer("confirmed")
    unguard(SideEffect)
    SideEffect.objects.update(resolved_at=None)
    return {told.row.pk}


@corrupts("E14")
def open_effect_resolved_by_somebody() -> set[Any]:
    told = Story().claim().effect().send()
    unguard(SideEffect)
    SideEffect.objects.update(resolved_by="send")
    return {told.row.pk}


@corrupts("S1")
def step_of_another_jobs_attempt() -> set[Any]:
    Story().claim().step()
    JobStep.objects.update(attempt_id=Story().claim().job.attempt_id)
    return {JobStep.objects.get().pk}
