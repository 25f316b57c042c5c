"""Corruptions of jobs, attempts, payloads and keys; each returns the ids that the invariant must name."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import connection

from django_jobs.domain.identity import fingerprint
from django_jobs.models import Attempt, IdempotencyKey, Job, JobPayload
from tests.integration.operate.corruptions import corrupts, set_job, set_last, unguard
from tests.integration.operate.stories import Story


@corrupts("J1")
def running_without_attempt() -> set[Any]:
    story = Story().claim()
    Attempt.objects.all().delete()
    return {story.job.pk}


@corrupts("J1")
def open_attempt_of_a_waiting_job() -> set[Any]:
    story = Story().claim().fail()
    set_last(story, outcome=None, finished_at=None)
    return {story.job.pk}


@corrupts("J1")
def two_open_attempts() -> set[Any]:
    story = Story().claim().release().claim()
    unguard(Attempt)
    Attempt.objects.filter(number=1).update(outcome=None, finished_at=None)
    return {story.job.pk}


@corrupts("J1")
def attempt_of_another_worker() -> set[Any]:
    story = Story().claim()
    set_last(story, worker_id=uuid.uuid4())
    return {story.job.pk}


@corrupts("J2")
def fence_ran_ahead() -> set[Any]:
    return set_job(Story().claim().succeed(), fence=2)


@corrupts("J2")
def attempt_is_missing() -> set[Any]:
    story = Story().claim().fail().claim().fail().claim()
    Attempt.objects.filter(number=2).delete()
    return {story.job.pk}


@corrupts("J2")
def numbers_do_not_begin_at_one() -> set[Any]:
    story = Story().claim().succeed()
    Attempt.objects.update(number=0)
    return {story.job.pk}


@corrupts("J3")
def unknown_failure_not_counted() -> set[Any]:
    return set_job(Story().claim().fail(), unknown_count=0)


@corrupts("J3")
def transient_failure_counted_twice() -> set[Any]:
    return set_job(Story().claim().fail(error_class="transient"), transient_count=2)


@corrupts("J3")
def losses_survive_a_failure() -> set[Any]:
    return set_job(
        Story().claim().lose().claim(alone="child").fail(), lost_count=1, exit_lost_count=1, isolation="child"
    )


@corrupts("J3")
def loss_not_counted() -> set[Any]:
    return set_job(Story().claim().lose(), lost_count=0, exit_lost_count=0, isolation="")


@corrupts("J3")
def loss_of_a_poisoned_job_not_counted() -> set[Any]:
    return set_job(Story().claim().lose(dead="poison"), lost_count=0, exit_lost_count=0, isolation="")


@corrupts("J3")
def free_move_not_counted() -> set[Any]:
    return set_job(Story().claim().release(), free_count=0)


@corrupts("J3")
def free_moves_out_of_nothing() -> set[Any]:
    return set_job(Story().claim().snooze(for_evidence=True), free_count=2)


@corrupts("J3")
def more_unchanged_than_unknown() -> set[Any]:
    return set_job(Story().claim().fail(), unchanged_count=2)


@corrupts("J3")
def losses_do_not_add_up() -> set[Any]:
    return set_job(Story().claim().lose(), lost_count=2)


@corrupts("J4")
def success_without_a_succeeded_attempt() -> set[Any]:
    story = Story().claim().succeed()
    set_last(story, outcome="failed", error_class="unknown", error_type="E")
    return {story.job.pk}


@corrupts("J4")
def job_ran_again_after_success() -> set[Any]:
    return set_job(Story().claim().succeed(), state="queued", finished_at=None)


@corrupts("J4")
def attempt_after_success() -> set[Any]:
    story = Story().claim().release().claim().succeed()
    unguard(Attempt)
    Attempt.objects.filter(number=1).update(outcome="succeeded")
    Attempt.objects.filter(number=2).update(outcome="released")
    return {story.job.pk}


@corrupts("J7")
def dead_letter_without_reason() -> set[Any]:
    return set_job(Story().claim().fail(dead="unknown_budget"), dead_reason="")


@corrupts("J7")
def dead_letter_without_time() -> set[Any]:
    return set_job(Story().claim().fail(dead="unknown_budget"), dead_at=None)


@corrupts("J7")
def living_job_with_a_reason() -> set[Any]:
    return set_job(Story(), dead_reason="permanent")


@corrupts("J7")
def cancelled_job_with_an_effect_under_review() -> set[Any]:
    story = Story().claim()
    story.effect(dedupe="none").send().answer("unknown").review()
    story.release().cancel()
    return {story.job.pk}


@corrupts("J8")
def permanent_failure_may_run_again() -> set[Any]:
    return set_job(
        Story().claim().fail(error_class="permanent", dead="permanent"), state="queued", dead_reason="", dead_at=None
    )


@corrupts("J8")
def attempt_after_a_permanent_failure() -> set[Any]:
    story = Story().claim().fail().claim().fail(dead="unknown_budget")
    Attempt.objects.filter(number=1).update(error_class="permanent")
    return set_job(story, unknown_count=1)


@corrupts("J9")
def unknown_state() -> set[Any]:
    return set_job(Story(), state="paused")


@corrupts("J9")
def waiting_job_with_a_lease() -> set[Any]:
    return set_job(Story(), lease_owner=uuid.uuid4())


@corrupts("J9")
def running_job_without_a_lease() -> set[Any]:
    return set_job(Story().claim(), lease_expires_at=None)


@corrupts("J9")
def success_without_an_end() -> set[Any]:
    return set_job(Story().claim().succeed(), finished_at=None)


@corrupts("J9")
def waiting_job_with_an_end() -> set[Any]:
    story = Story()
    return set_job(story, finished_at=story.now)


@corrupts("J9")
def unknown_resolution() -> set[Any]:
    return set_job(Story().claim().fail(dead="unknown_budget").discard(), resolution="forgotten")


@corrupts("J10")
def suspect_in_company() -> set[Any]:
    return set_job(Story().claim().lose(), isolation="")


@corrupts("J10")
def isolation_without_a_loss() -> set[Any]:
    return set_job(Story(), isolation="worker")


@corrupts("J11")
def generation_fell() -> set[Any]:
    story = (
        Story().claim().fail(error_class="permanent", dead="permanent").replay().claim().fail(error_class="transient")
    )
    Attempt.objects.filter(number=1).update(generation=2)
    Attempt.objects.filter(number=2).update(generation=1)
    return {story.job.pk}


@corrupts("J11")
def attempt_of_a_later_generation() -> set[Any]:
    story = Story().claim()
    Attempt.objects.update(generation=2)
    return {story.job.pk}


@corrupts("A1")
def loss_without_cause() -> set[Any]:
    return {set_last(Story().claim().lose(), loss_cause="").pk}


@corrupts("A1")
def closed_without_time() -> set[Any]:
    return {set_last(Story().claim().succeed(), finished_at=None).pk}


@corrupts("A1")
def failure_without_class() -> set[Any]:
    return {set_last(Story().claim().fail(), error_class="").pk}


@corrupts("A1")
def cause_without_loss() -> set[Any]:
    return {set_last(Story().claim().release(), loss_cause="exit").pk}


@corrupts("A1")
def exit_status_of_a_silent_loss() -> set[Any]:
    return {set_last(Story().claim().lose("silent"), exit_status=1).pk}


@corrupts("A1")
def unknown_outcome() -> set[Any]:
    return {set_last(Story().claim().release(), outcome="vanished").pk}


@corrupts("A1")
def open_attempt_with_an_error() -> set[Any]:
    return {set_last(Story().claim(), error_class="unknown").pk}


@corrupts("A2")
def one_number_twice() -> set[Any]:
    story = Story().claim().release().claim()
    unguard(Attempt)
    Attempt.objects.filter(number=2).update(number=1)
    return {story.job.pk}


@corrupts("P1")
def payload_is_missing() -> set[Any]:
    story = Story()
    JobPayload.objects.all().delete()
    return {story.job.pk}


@corrupts("P1")
def payload_twice() -> set[Any]:
    story = Story()
    unguard(JobPayload)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO django_jobs_jobpayload SELECT * FROM django_jobs_jobpayload")
    return {story.job.pk}


@corrupts("P2")
def payload_was_changed() -> set[Any]:
    story = Story(arguments={"order_id": 7, "note": "Größe"})
    JobPayload.objects.update(arguments='{"order_id":8}')
    return {story.job.pk}


@corrupts("K1")
def expiry_beside_a_job() -> set[Any]:
    story = Story(key="order:1")
    IdempotencyKey.objects.update(expires_at=story.now)
    return {story.job.pk}


@corrupts("K1")
def key_without_job_or_expiry() -> set[Any]:
    story = Story(key="order:1")
    JobPayload.objects.all().delete()
    Job.objects.all().delete()
    return {story.job.pk}


@corrupts("K2")
def fingerprints_differ() -> set[Any]:
    story = Story(key="order:1")
    IdempotencyKey.objects.update(payload_fingerprint=fingerprint("other"))
    return {story.job.pk}


@corrupts("K2")
def key_differs_from_the_payload() -> set[Any]:
    story = Story(key="order:1").claim().succeed()
    IdempotencyKey.objects.update(key="order:2")
    return {story.job.pk}


@corrupts("K3")
def unfinished_job_lost_its_key() -> set[Any]:
    story = Story(key="order:1").claim().fail(dead="unknown_budget")
    IdempotencyKey.objects.all().delete()
    return {story.job.pk}


@corrupts("K4")
def two_holders() -> set[Any]:
    first, second = Story(key="order:1"), Story(key="order:2")
    unguard(IdempotencyKey)
    IdempotencyKey.objects.update(key="order:1")
    JobPayload.objects.update(key="order:1")
    return {first.job.pk, second.job.pk}


@corrupts("K5")
def key_taken_from_an_unfinished_job() -> set[Any]:
    holder = Story(key="order:1")
    return {Story(key="order:1", takes_over=holder.job).job.pk}
