"""Rows that only look pruned, and content that is gone or left behind; each returns the ids that must be named."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django_jobs.models import (
    Attempt,
    IdempotencyKey,
    Job,
    JobPayload,
    JobStep,
    PrunedStretch,
    Reconciliation,
    Send,
    SideEffect,
)
from django_jobs.operate.prune import prune
from tests.integration.operate.corruptions import corrupts, unguard
from tests.integration.operate.stories import Story, later


def pruned_content(key: str = "") -> Story:
    """Return a finished job with everything that it can have, emptied by a real run."""
    story = Story(key=key).claim().fail().claim().step()
    story.effect("order:1", dedupe="none", can_reconcile=True).send().answer("unknown").ask("succeeded")
    story.effect("order:2", dedupe="none", on_ambiguous="accept").send().answer("unknown").abandon()
    story.succeed({"card": "4111"})
    with later(days=40):
        assert prune(using="default").content == 1
    return story


def vanish(story: Story) -> None:
    """Delete a job with its own rows, as a careless hand would."""
    for model in (Attempt, JobPayload, JobStep):
        model.objects.filter(job_id=story.job.pk).delete()
    Job.objects.filter(pk=story.job.pk).delete()


@corrupts("K1")
def key_of_a_job_that_only_looks_pruned() -> set[Any]:
    story = Story(key="order:1").claim().succeed()
    IdempotencyKey.objects.update(expires_at=story.now, final_state="succeeded")
    vanish(story)
    return {story.job.pk}


@corrupts("K1")
def pruned_key_that_does_not_say_how_it_ended() -> set[Any]:
    story = Story(key="order:1").claim().succeed()
    IdempotencyKey.objects.update(ttl_seconds=500 * 86400)
    with later(days=401):
        assert prune(using="default").jobs == 1
    IdempotencyKey.objects.update(final_state=None)
    return {story.job.pk}


@corrupts("K5")
def key_taken_from_a_job_that_vanished() -> set[Any]:
    old = Story(key="order:1").claim().succeed()
    new = Story(key="order:1", takes_over=old.job)
    vanish(old)
    return {new.job.pk}


@corrupts("E8")
def sender_vanished_without_record() -> set[Any]:
    first, second = Story().claim(), Story().claim()
    shared = first.effect("shared").send().answer("rejected")
    first.fail(error_class="permanent", dead="permanent").discard()
    second.pass_time(timedelta(seconds=30))
    shared.send(second).answer("confirmed")
    second.succeed()
    send = shared.sends[0]
    vanish(first)
    return {send.pk}


@corrupts("P1")
def payload_left_beside_removed_content() -> set[Any]:
    story = pruned_content()
    JobPayload.objects.create(job_id=story.job.pk, arguments="{}")
    return {story.job.pk}


@corrupts("R3")
def content_removed_without_record() -> set[Any]:
    story = pruned_content()
    PrunedStretch.objects.all().delete()
    return {story.job.pk}


@corrupts("R3")
def record_of_another_stretch() -> set[Any]:
    story = pruned_content()
    other = Story().job.pk
    PrunedStretch.objects.update(first_job_id=other, last_job_id=other)
    return {story.job.pk}


@corrupts("R3")
def content_of_an_unfinished_job_removed() -> set[Any]:
    story = pruned_content()
    Attempt.objects.filter(number=2).update(outcome="failed", error_class="permanent", error_type="E")
    unguard(Job)
    Job.objects.update(state="dead_lettered", finished_at=None, dead_reason="permanent", dead_at=story.now)
    return {story.job.pk}


@corrupts("R3")
def content_removed_although_an_effect_is_open() -> set[Any]:
    story = pruned_content()
    SideEffect.objects.filter(business_key="order:2").update(needs_review=True)
    return {story.job.pk}


@corrupts("R3")
def request_emptied_by_hand() -> set[Any]:
    story = Story().claim()
    story.effect().send().answer("confirmed")
    SideEffect.objects.update(request="")
    return {story.job.pk}


@corrupts("R3")
def digest_of_a_send_emptied_by_hand() -> set[Any]:
    story = Story().claim()
    story.effect().send().answer("confirmed")
    Send.objects.update(request_digest="")
    return {story.job.pk}


@corrupts("R3")
def fingerprint_emptied_by_hand() -> set[Any]:
    story = Story()
    Job.objects.update(payload_fingerprint="")
    return {story.job.pk}


@corrupts("R4")
def traceback_left() -> set[Any]:
    story = pruned_content()
    Attempt.objects.filter(number=1).update(traceback="card 4111")
    return {story.job.pk}


@corrupts("R4")
def step_left() -> set[Any]:
    story = pruned_content()
    JobStep.objects.update(result='{"card":"4111"}')
    return {story.job.pk}


@corrupts("R4")
def request_left() -> set[Any]:
    story = pruned_content()
    SideEffect.objects.filter(business_key="order:1").update(request="{}")
    return {story.job.pk}


@corrupts("R4")
def digest_left() -> set[Any]:
    story = pruned_content()
    Send.objects.filter(number=1).update(request_digest="v1:" + "0" * 64)
    return {story.job.pk}


@corrupts("R4")
def answer_left() -> set[Any]:
    story = pruned_content()
    Send.objects.update(reason="declined: card 4111")
    return {story.job.pk}


@corrupts("R4")
def evidence_left() -> set[Any]:
    story = pruned_content()
    Reconciliation.objects.update(evidence='{"card":"4111"}')
    return {story.job.pk}


@corrupts("R4")
def fingerprint_left() -> set[Any]:
    story = pruned_content()
    Job.objects.update(payload_fingerprint="v1:" + "0" * 64)
    return {story.job.pk}


@corrupts("R5")
def more_emptied_than_recorded() -> set[Any]:
    pruned_content()
    Job.objects.update(content_removed_at=PrunedStretch.objects.get().created_at)
    other = Story().claim().succeed()
    JobPayload.objects.filter(pk=other.job.pk).delete()
    stretch = PrunedStretch.objects.get()
    Job.objects.filter(pk=other.job.pk).update(content_removed_at=stretch.created_at, payload_fingerprint="")
    PrunedStretch.objects.update(last_job_id=other.job.pk)
    return {stretch.pk}


@corrupts("R5")
def record_of_nothing() -> set[Any]:
    pruned_content()
    PrunedStretch.objects.update(rows=0)
    return {PrunedStretch.objects.get().pk}
