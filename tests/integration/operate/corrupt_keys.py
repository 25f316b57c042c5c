"""Corruptions of attempts' ends, payloads and keys; each returns the ids that the invariant must name."""

from __future__ import annotations

from typing import Any

from django.db import connection

from django_jobs.domain.identity import fingerprint
from django_jobs.models import Attempt, IdempotencyKey, Job, JobPayload
from tests.integration.operate.corruptions import corrupts, set_last, unguard
from tests.integration.operate.stories import Story


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


@corrupts("A1")
def open_attempt_with_an_end() -> set[Any]:
    story = Story().claim()
    return {set_last(story, finished_at=story.now).pk}


@corrupts("A1")
def loss_of_unknown_cause() -> set[Any]:
    return {set_last(Story().claim().lose("silent"), loss_cause="magic").pk}


@corrupts("A1")
def failure_without_type() -> set[Any]:
    return {set_last(Story().claim().fail(), error_type="").pk}


@corrupts("K2")
def payload_versions_differ() -> set[Any]:
    story = Story(key="order:1")
    IdempotencyKey.objects.update(payload_version=2)
    return {story.job.pk}


@corrupts("K2")
def scopes_differ() -> set[Any]:
    story = Story(key="order:1").claim().succeed()
    IdempotencyKey.objects.update(scope="other")
    return {story.job.pk}


@corrupts("K3")
def key_went_to_another_job() -> set[Any]:
    story, other = Story(key="order:1"), Story()
    IdempotencyKey.objects.update(job_id=other.job.pk)
    return {story.job.pk}


@corrupts("K3")
def unfinished_job_holds_another_key() -> set[Any]:
    story = Story(key="order:1")
    IdempotencyKey.objects.update(key="order:2")
    return {story.job.pk}


@corrupts("K3")
def unfinished_job_holds_its_key_elsewhere() -> set[Any]:
    story = Story(key="order:1")
    IdempotencyKey.objects.update(scope="other")
    return {story.job.pk}


@corrupts("K5")
def key_taken_from_itself() -> set[Any]:
    story = Story(key="order:1").claim().succeed()
    JobPayload.objects.update(previous_job_id=story.job.pk)
    return {story.job.pk}
