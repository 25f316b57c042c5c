"""A database in which everything happened that may happen, and nothing that may not."""

from __future__ import annotations

from datetime import timedelta

from django_jobs import clock
from django_jobs.domain.ids import uuid7
from django_jobs.models import IdempotencyKey, PrunedStretch
from tests.integration.operate.cancelled_stories import healthy_cancels
from tests.integration.operate.stories import ERROR, Story


def healthy() -> None:
    """Tell a story that ends in every state, with every outcome of an attempt and every state of an effect."""
    Story()
    Story(state="scheduled")
    Story().claim()
    Story().claim().fail().claim().fail(error_class="transient")
    Story(key="order:1").duplicate().claim().step().succeed({"ref": "ch_1"})
    Story().claim().fail(error_class="permanent", dead="permanent")
    Story(key="order:2").claim().fail(error_class="permanent", dead="permanent").discard()
    Story().claim().lose().claim(alone="child").lose().claim(alone="child").lose(dead="poison")
    Story().claim().lose("silent").claim().lose("silent").claim(alone="worker").succeed()
    Story().claim().lose("expired").claim().release().claim().snooze().claim().snooze(for_evidence=True)
    Story().claim().lose().claim(alone="child").fail().claim().lose().claim(alone="child")
    Story().claim().fail(error_class="permanent", dead="permanent").replay().claim().succeed()
    Story().claim().lose("silent").claim().lose("silent")
    Story().claim().lose("expired")
    Story().claim().give_up()
    Story().claim().lose().claim(alone="child").give_up()
    Story().cancel()
    healthy_cancels(Story)
    Story().expire()
    settled = Story(key="order:10").claim().fail(error_class="transient", dead="age").discard()
    Story(key="order:10", takes_over=settled.job)
    pruned = IdempotencyKey(job_id=uuid7(), scope="/gone", key="order:11", payload_fingerprint=ERROR, ttl_seconds=1.0)
    pruned.created_at = pruned.expires_at = settled.now
    pruned.final_state = "succeeded"
    pruned.save()
    PrunedStretch.objects.create(
        kind="jobs",
        first_job_id=pruned.pk,
        last_job_id=pruned.pk,
        rows=1,
        finished_before=clock.now(),
        created_at=clock.now(),
    )
    Story(key="order:3", takes_over=Story(key="order:3").claim().succeed().job)
    _healthy_effects()


def _healthy_effects() -> None:
    Story().claim().effect("planned")
    Story().claim().effect("in flight").send()
    Story().claim().effect("ambiguous").send().send().answer("unknown")
    story = Story().claim()
    charged = story.effect("order:4").send().answer("unknown").send().answer("confirmed")
    story.succeed()
    Story().claim().adopt(charged.row).succeed()
    story = Story().claim()
    story.effect("order:5", dedupe="none", can_reconcile=True).send().answer("unknown").ask("pending").ask("succeeded")
    story.succeed()
    story = Story().claim()
    story.effect("order:6", dedupe="none").send().answer("unknown").ask("not_found", final=True).send().answer(
        "confirmed"
    )
    story.succeed()
    story = Story().claim()
    story.effect("burnt").send().answer("rejected", key_is_burnt=True).send(epoch=1).answer("confirmed")
    story.effect("declined", required=False).send().answer("rejected")
    story.succeed()
    story = Story().claim()
    story.effect("lost mail", dedupe="none", on_ambiguous="accept").send().answer("unknown").abandon()
    story.effect("twice", dedupe="none", on_ambiguous="resend").send().answer("unknown").send().answer("confirmed")
    story.effect("put", dedupe="natural").send().answer("unknown").send().answer("confirmed")
    story.succeed()
    story = Story().claim()
    story.effect("review", dedupe="none").send().answer("unknown").review()
    story.fail(error_class="permanent", dead="effect_review")
    story = Story().claim()
    story.effect("asked", can_reconcile=True).send().answer("unknown").ask("pending").ask("not_found", actor="anna")
    story.effect("slow", can_reconcile=True).send(settle=timedelta(hours=1)).answer("unknown").ask("not_found")
    late = story.effect("late", dedupe="none", can_reconcile=True).send(settle=timedelta(hours=1)).answer("rejected")
    late.send().answer("unknown").ask("not_found", final=True).send()
    story.effect("two names", name="reserve")
    story.effect("two names", name="capture")
    story = Story().claim()
    story.effect("refused").send().answer("rejected")
    story.fail()
    first, second = Story().claim(), Story().claim()
    shared = first.effect("shared").send().answer("rejected")
    first.fail(error_class="permanent", dead="permanent")
    second.pass_time(timedelta(seconds=30))
    shared.send(second)
    first, second = Story().claim(), Story().claim()
    second.pass_time(timedelta(seconds=30))
    first.effect("left and may be refused", required=False).send().answer("rejected").send(second)
    first.pass_time(timedelta(minutes=2))
    first.succeed()
