"""Effects of stories that are taken back, by jobs that are stories too."""

from __future__ import annotations

from django_jobs.domain.compensation import COMPENSATION_EFFECT, COMPENSATION_TYPE, taken_back_key
from django_jobs.domain.identity import fingerprint
from django_jobs.domain.ids import uuid7
from django_jobs.models import Compensation, OperatorAction
from tests.integration.operate.stories import EffectStory, Story


class TakenBack:
    """One compensation: its row, its audit row, and the story of its job, which is in its first attempt."""

    def __init__(self, told: EffectStory) -> None:
        self.effect = told
        self.story = Story(
            job_type=COMPENSATION_TYPE,
            arguments={"effect_id": str(told.row.pk), "by_hand": False},
            correlation_id=str(told.story.job.pk),
        )
        now = told.story.pass_time()
        digest = fingerprint("{}")
        self.action = OperatorAction.objects.create(
            id=uuid7(),
            action="compensate",
            actor="ada",
            owner="billing",
            reason="the customer gave it back",
            job_id=told.story.job.pk,
            effect_id=told.row.pk,
            given_digest=digest,
            plan_digest=digest,
            created_at=now,
        )
        self.row = Compensation.objects.create(
            effect=told.row,
            original_job_id=told.story.job.pk,
            job_id=self.story.job.pk,
            action_id=self.action.pk,
            created_at=now,
        )
        self.story.claim()

    def succeed(self) -> TakenBack:
        """Refund it, and close everything."""
        refund = self.story.effect(taken_back_key(self.effect.row.pk), name=COMPENSATION_EFFECT)
        refund.send().answer("confirmed")
        self.story.succeed()
        return self._close("succeeded")

    def give_up(self) -> TakenBack:
        """Fail before anything was sent, and be discarded."""
        self.story.fail(error_class="permanent", dead="permanent").discard()
        return self._close("void")

    def _close(self, outcome: str) -> TakenBack:
        self.row.outcome, self.row.closed_at = outcome, self.story.now
        self.row.save()
        return self


def charged() -> EffectStory:
    """A charge that was applied by a job which then became a dead letter."""
    story = Story().claim()
    told = story.effect(f"order:{story.job.pk}").send().answer("confirmed")
    story.fail(error_class="permanent", dead="permanent")
    return told


def healthy_compensations() -> None:
    """Tell of compensations in every outcome, and of dead letters before and after all was taken back."""
    TakenBack(charged())
    told = charged()
    TakenBack(told).give_up()
    TakenBack(told).succeed()
    settled(told)
    story = Story().claim()
    told = story.effect("paid and given back").send().answer("confirmed")
    story.succeed()
    TakenBack(told).succeed()


def settled(told: EffectStory) -> EffectStory:
    """Resolve the dead letter of a charge as compensated."""
    told.story._set(resolution="compensated", finished_at=told.story.pass_time())
    return told
