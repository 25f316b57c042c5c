"""Corruptions of jobs, attempts, payloads and keys; each returns the ids that the invariant must name."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from django.db import models

from django_jobs.models import Attempt, OperatorAction, SerialTurn
from tests.integration.operate.corruptions import Corruption, corrupts, set_job, set_last, unguard
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
    return set_job(Story().claim(alone="child").lose(dead="poison"), lost_count=0, exit_lost_count=0, isolation="")


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


@corrupts("J8")
def attempt_after_a_permanent_failure_of_an_earlier_generation() -> set[Any]:
    story = Story().claim().fail().claim().fail(dead="unknown_budget").replay().claim().succeed()
    Attempt.objects.filter(number=1).update(error_class="permanent")
    return {story.job.pk}


def _replayed() -> Story:
    return Story().claim().fail(error_class="permanent", dead="permanent").replay()


def _forged(action: str, **columns: Any) -> None:
    """Change columns of the audit past the model that refuses it, and past all constraints."""
    unguard(OperatorAction)
    changed = models.QuerySet(OperatorAction).filter(action=action).update(**columns)
    assert changed == 1


@corrupts("J6")
def generation_that_nobody_decided() -> set[Any]:
    return set_job(Story(), generation=2)


@corrupts("J6")
def replay_that_left_no_generation() -> set[Any]:
    return set_job(_replayed(), generation=1)


@corrupts("J6")
def two_replays_of_one_generation() -> set[Any]:
    story = _replayed().claim().fail(error_class="permanent", dead="permanent").replay()
    unguard(OperatorAction)
    models.QuerySet(OperatorAction).filter(from_generation=2).update(from_generation=1)
    return {story.job.pk}


@corrupts("J6")
def replay_that_was_not_acknowledged() -> set[Any]:
    story = _replayed()
    _forged("replay", given_digest="")
    return {story.job.pk}


@corrupts("J6")
def replay_of_another_plan() -> set[Any]:
    story = _replayed()
    _forged("replay", given_digest="v1:b")
    return {story.job.pk}


@corrupts("J12")
def discard_that_nobody_decided() -> set[Any]:
    story = Story().claim().fail(dead="unknown_budget")
    return set_job(story, resolution="discarded", finished_at=story.now)


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


@corrupts("J1")
def job_names_another_attempt() -> set[Any]:
    return set_job(Story().claim(), attempt_id=uuid.uuid4())


@corrupts("J1")
def job_names_no_attempt() -> set[Any]:
    return set_job(Story().claim(), attempt_id=None)


@corrupts("J1")
def open_attempt_has_another_number() -> set[Any]:
    return {set_last(Story().claim(), number=5).job_id}


@corrupts("J1")
def open_attempt_of_another_generation() -> set[Any]:
    return {set_last(Story().claim(), generation=2).job_id}


@corrupts("J1")
def open_attempt_of_another_child() -> set[Any]:
    return {set_last(Story().claim(), worker_child=2).job_id}


@corrupts("J2")
def number_ran_ahead_of_the_fence() -> set[Any]:
    return {set_last(Story().claim().fail().claim().fail(), number=3).job_id}


@corrupts("J2")
def first_number_is_zero() -> set[Any]:
    story = Story().claim().fail().claim().fail()
    Attempt.objects.filter(number=1).update(number=0)
    return {story.job.pk}


@corrupts("J3")
def unknown_failure_counted_twice() -> set[Any]:
    return set_job(Story().claim().fail(), unknown_count=2)


@corrupts("J3")
def free_moves_without_any_move() -> set[Any]:
    return set_job(Story().claim().fail(), free_count=1)


@corrupts("J3")
def silent_loss_not_counted() -> set[Any]:
    return set_job(Story().claim().lose("silent"), lost_count=0, silent_lost_count=0)


@corrupts("J3")
def silent_loss_survives_a_snooze() -> set[Any]:
    return set_job(Story().claim().lose("silent").claim().snooze(), lost_count=1, silent_lost_count=1)


@corrupts("J7")
def living_job_with_a_time_of_death() -> set[Any]:
    story = Story()
    return set_job(story, dead_at=story.now)


@corrupts("J7")
def living_job_with_a_resolution() -> set[Any]:
    return set_job(Story(), resolution="discarded")


def _lease_column_missing(column: str) -> Corruption:
    def corruption() -> set[Any]:
        return set_job(Story().claim(), **{column: None})

    corruption.__name__ = f"running_without_{column}"
    return corruption


def _lease_column_left(column: str, value: Any) -> Corruption:
    def corruption() -> set[Any]:
        return set_job(Story(), **{column: value})

    corruption.__name__ = f"waiting_with_{column}"
    return corruption


for _name in ("attempt_id", "lease_owner", "lease_child"):
    corrupts("J9")(_lease_column_missing(_name))
for _name, _value in (
    ("attempt_id", uuid.UUID(int=1)),
    ("lease_child", 1),
    ("lease_expires_at", datetime(2026, 1, 1, tzinfo=UTC)),
):
    corrupts("J9")(_lease_column_left(_name, _value))


@corrupts("J10")
def silent_suspect_in_company() -> set[Any]:
    return set_job(Story().claim().lose("silent").claim().lose("silent"), isolation="")


@corrupts("J11")
def generation_of_nothing() -> set[Any]:
    return set_job(Story(), generation=0)


@corrupts("J18")
def ready_job_in_the_lane_of_another_resource() -> set[Any]:
    story = Story()
    set_job(story, resource="payments-api")
    return {story.job.pk}


@corrupts("J18")
def retry_that_waits_in_the_lane_of_a_resource() -> set[Any]:
    story = Story().claim().fail()
    set_job(story, lane="payments-api", resource="payments-api")
    return {story.job.pk}


@corrupts("J19")
def running_job_that_has_not_the_turn_of_its_key() -> set[Any]:
    story = Story().claim()
    set_job(story, serial_key="account:1")
    return {story.job.pk}


@corrupts("J19")
def ready_job_beside_the_one_that_has_the_turn() -> set[Any]:
    first, second = Story(), Story()
    SerialTurn.objects.create(key="account:1", job_id=first.job.pk)
    set_job(first, serial_key="account:1")
    set_job(second, serial_key="account:1")
    return {second.job.pk}
