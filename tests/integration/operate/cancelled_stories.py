"""What decisions leave in the story of a job: the audit, a request to cancel, and the attempt that heard it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.models import Attempt, CancelRequest, OperatorAction

if TYPE_CHECKING:
    from tests.integration.operate.stories import Story


def ask_to_cancel(story: Story) -> CancelRequest:
    """Leave a request to cancel the job in its present generation."""
    story.decide("cancel")
    action = OperatorAction.objects.filter(job_id=story.job.pk).latest("id")
    return CancelRequest.objects.create(
        job_id=story.job.pk, generation=story.job.generation, action_id=action.pk, created_at=story.pass_time()
    )


def hear(story: Story, *, dead: bool = False) -> Story:
    """End the attempt as cancelled."""
    now = story.pass_time()
    Attempt.objects.filter(pk=story.job.attempt_id).update(outcome="cancelled", finished_at=now)
    end = {"dead_at": now, "dead_reason": "cancelled"} if dead else {"finished_at": now}
    return story._leave("dead_lettered" if dead else "cancelled", **end)


def healthy_cancels(begin: type[Story]) -> None:
    """Tell of requests that were heard, that came too late, and of a handler that cancelled its own job."""
    for heard in (False, True):
        story = begin().claim()
        ask_to_cancel(story)
        hear(story) if heard else story.succeed()
    story = begin().claim()
    story.effect("sent").send().answer("confirmed")
    ask_to_cancel(story)
    hear(story, dead=True)
    hear(begin().claim())
