"""Jobs with a past, written row by row as the store would leave them, a second passing with every step.

A story is told in the order of its events: ``Story().claim().fail().claim().succeed()``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django_jobs import clock
from django_jobs.domain.canonical import canonical
from django_jobs.domain.facts import join
from django_jobs.domain.identity import fingerprint, provider_key, scope_text
from django_jobs.domain.poison import isolation
from django_jobs.models import (
    Attempt,
    DuplicateEnqueue,
    EffectAdoption,
    EffectStake,
    IdempotencyKey,
    Job,
    JobPayload,
    JobStep,
    OperatorAction,
    Reconciliation,
    Send,
    SideEffect,
)

JOB_TYPE = "shop.charge_order"
ERROR = "v1:" + "e" * 64
WORKER = uuid.UUID(int=7)
SECOND = timedelta(seconds=1)
LIFETIME = timedelta(hours=24)


@contextmanager
def later(**span: float) -> Iterator[None]:
    """Put the clock of the block so far ahead."""
    moment = clock.now() + timedelta(**span)
    with clock.override(lambda: moment):
        yield


class Story:
    """One job; each method lets something happen to it and returns the story."""

    def __init__(
        self,
        *,
        arguments: dict[str, Any] | None = None,
        key: str = "",
        takes_over: Job | None = None,
        ago: timedelta = timedelta(minutes=10),
        **fields: Any,
    ) -> None:
        self.now = clock.now() - ago
        text = canonical({"order_id": 7} if arguments is None else arguments)
        self.job = Job.objects.create(
            **{
                "job_type": JOB_TYPE,
                "queue_name": "payments",
                "state": "queued",
                "payload_fingerprint": fingerprint(text),
                "created_at": self.now,
                "generation_started_at": self.now,
                "available_at": self.now,
                **fields,
            }
        )
        scope = scope_text("", JOB_TYPE) if key else ""
        previous = takes_over.pk if takes_over else None
        JobPayload.objects.create(job=self.job, arguments=text, key=key, key_scope=scope, previous_job_id=previous)
        if takes_over:
            IdempotencyKey.objects.filter(job_id=takes_over.pk).delete()
        if key:
            IdempotencyKey.objects.create(
                job_id=self.job.pk,
                scope=scope,
                key=key,
                payload_fingerprint=self.job.payload_fingerprint,
                ttl_seconds=7 * 86400.0,
                created_at=self.now,
            )

    @property
    def last(self) -> Attempt:
        """The newest attempt."""
        return Attempt.objects.get(job_id=self.job.pk, number=self.job.fence)

    def pass_time(self, span: timedelta = SECOND) -> datetime:
        """Let time pass; returns the new present of the story."""
        self.now += span
        return self.now

    def claim(self, *, lease: timedelta = timedelta(hours=1), alone: str = "") -> Story:
        """Open the next attempt."""
        now, attempt_id = self.pass_time(), uuid.uuid4()
        self._set(
            state="running",
            fence=self.job.fence + 1,
            attempt_id=attempt_id,
            lease_owner=WORKER,
            lease_child=1,
            lease_expires_at=now + lease,
            code_version="build-1",
        )
        Attempt.objects.create(
            id=attempt_id,
            job=self.job,
            number=self.job.fence,
            generation=self.job.generation,
            worker_id=WORKER,
            worker_child=1,
            worker_name="web-1:4711",
            code_version="build-1",
            alone=alone,
            started_at=now,
            lease_seconds=lease.total_seconds(),
        )
        return self

    def succeed(self, result: Any = None) -> Story:
        """End the attempt and the job with success."""
        self._close("succeeded")
        JobPayload.objects.filter(pk=self.job.pk).update(result=canonical(result))
        return self._leave(
            "succeeded", finished_at=self.now, lost_count=0, exit_lost_count=0, silent_lost_count=0, isolation=""
        )

    def fail(self, *, error_class: str = "unknown", message: str = "no luck", dead: str = "") -> Story:
        """End the attempt with an error; with ``dead`` the job waits for a human for this reason."""
        self._close(
            "failed",
            error_class=error_class,
            error_type="shop.PaymentError",
            error_fingerprint=ERROR,
            message=message,
            traceback="Traceback (most recent call last): …",
        )
        JobPayload.objects.filter(pk=self.job.pk).update(error_text=message)
        counter = (
            {f"{error_class}_count": getattr(self.job, f"{error_class}_count") + 1}
            if error_class != "permanent"
            else {}
        )
        cleared = {"lost_count": 0, "exit_lost_count": 0, "silent_lost_count": 0, "isolation": ""}
        error = {"error_class": error_class, "error_type": "shop.PaymentError", "error_fingerprint": ERROR}
        return self._leave(
            "dead_lettered" if dead else "failed",
            **counter,
            **cleared,
            **error,
            **({"dead_reason": dead, "dead_at": self.now} if dead else {"available_at": self.now + SECOND}),
        )

    def give_up(self, reason: str = "effect_open") -> Story:
        """Leave the job to a human after it waited too long for evidence: no counter moves."""
        self._close("failed", error_class="unknown", error_type="EffectUncertain", error_fingerprint=ERROR)
        return self._leave("dead_lettered", dead_reason=reason, dead_at=self.now)

    def lose(self, cause: str = "exit", *, dead: str = "") -> Story:
        """Lose the attempt: nobody saw how it ended."""
        self._close("lost", loss_cause=cause, exit_status=-9 if cause == "exit" else None)
        if cause == "expired":
            counters = {"free_count": self.job.free_count + 1}
        else:
            exits = self.job.exit_lost_count + (cause == "exit")
            silences = self.job.silent_lost_count + (cause == "silent")
            counters = {
                "lost_count": exits + silences,
                "exit_lost_count": exits,
                "silent_lost_count": silences,
                "isolation": isolation(exit_lost=exits, silent_lost=silences).value,
            }
        end = {"dead_reason": dead, "dead_at": self.now} if dead else {}
        return self._leave("dead_lettered" if dead else "queued", **counters, **end)

    def release(self) -> Story:
        """Give the job back."""
        self._close("released")
        return self._leave("queued", free_count=self.job.free_count + 1)

    def snooze(self, *, for_evidence: bool = False) -> Story:
        """Put the job off, of its own wish or until more is known about an effect."""
        self._close("snoozed")
        own = {} if for_evidence else {"free_count": self.job.free_count + 1}
        since = self.now if for_evidence else None
        return self._leave(
            "scheduled",
            available_at=self.now + timedelta(hours=2),
            waiting_since=since,
            lost_count=0,
            exit_lost_count=0,
            silent_lost_count=0,
            isolation="",
            **own,
        )

    def expire(self) -> Story:
        """Let the job's usefulness pass before it could start."""
        self.pass_time()
        return self._set(state="dead_lettered", dead_reason="expired", dead_at=self.now)

    def cancel(self) -> Story:
        """Cancel the job while it waits."""
        self.decide("cancel")
        return self._set(state="cancelled", finished_at=self.pass_time())

    def decide(self, action: str, **fields: Any) -> Story:
        """Record that somebody decided this about the job as it is."""
        OperatorAction.objects.create(
            **{
                "action": action,
                "actor": "ada",
                "owner": "billing",
                "reason_code": "other",
                "reason": "checked with the customer",
                "job_id": self.job.pk,
                "from_state": self.job.state,
                "from_revision": self.job.revision,
                "from_generation": self.job.generation,
                "given_digest": fingerprint("{}"),
                "plan_digest": fingerprint("{}"),
                "created_at": self.pass_time(),
                **fields,
            }
        )
        return self

    def discard(self) -> Story:
        """Settle the dead letter."""
        self.decide("discard")
        return self._set(resolution="discarded", finished_at=self.pass_time())

    def replay(self) -> Story:
        """Begin a new generation of a dead letter."""
        self.decide("replay")
        zero = dict.fromkeys(
            ("unknown_count", "transient_count", "lost_count", "exit_lost_count", "silent_lost_count", "free_count"), 0
        )
        return self._set(
            state="queued",
            generation=self.job.generation + 1,
            generation_started_at=self.pass_time(),
            dead_at=None,
            dead_reason="",
            isolation="",
            unchanged_count=0,
            **zero,
        )

    def step(self, name: str = "reserve") -> Story:
        """Finish a step of the handler."""
        JobStep.objects.create(
            job=self.job,
            name=name,
            result="{}",
            attempt_id=self.job.attempt_id,
            fence=self.job.fence,
            created_at=self.pass_time(),
        )
        return self

    def duplicate(self) -> Story:
        """Answer a later enqueue with this job."""
        DuplicateEnqueue.objects.create(job_id=self.job.pk, outcome="duplicate", created_at=self.pass_time())
        return self

    def effect(self, business_key: str = "order:7", **fields: Any) -> EffectStory:
        """Plan an effect of this job."""
        return EffectStory(self, business_key, fields)

    def adopt(self, effect: SideEffect) -> Story:
        """Take the receipt of another job's effect."""
        EffectAdoption.objects.create(
            effect=effect, job=self.job, attempt_id=self.job.attempt_id, created_at=self.pass_time()
        )
        return self

    def _close(self, outcome: str, **fields: Any) -> None:
        changed = Attempt.objects.filter(pk=self.job.attempt_id).update(
            outcome=outcome, finished_at=self.pass_time(), **fields
        )
        assert changed == 1

    def _leave(self, state: str, **fields: Any) -> Story:
        return self._set(
            state=state, attempt_id=None, lease_owner=None, lease_child=None, lease_expires_at=None, **fields
        )

    def _set(self, **fields: Any) -> Story:
        Job.objects.filter(pk=self.job.pk).update(**fields)
        for name, value in fields.items():
            setattr(self.job, name, value)
        return self


class EffectStory:
    """One effect; each method lets something happen to it and returns it."""

    def __init__(self, story: Story, business_key: str, fields: dict[str, Any]) -> None:
        self.story = story
        request = canonical({"order_id": 7, "amount": 1200})
        self.row = SideEffect.objects.create(
            **{
                "job": story.job,
                "provider": "payments",
                "business_key": business_key,
                "name": "charge",
                "request": request,
                "request_digest": fingerprint(request),
                "dedupe": "key",
                "key_lifetime_seconds": LIFETIME.total_seconds(),
                "owner": "billing",
                "created_at": story.pass_time(),
                **fields,
            }
        )

    @property
    def sends(self) -> list[Send]:
        """All sends, by number."""
        return list(Send.objects.filter(effect_id=self.row.pk).order_by("number"))

    def send(self, story: Story | None = None, *, epoch: int | None = None, settle: timedelta = SECOND) -> EffectStory:
        """Record a request of the running attempt, of this effect's job or of another story's."""
        by = story or self.story
        if by.job.pk != self.row.job_id:
            self.leave(by)
        now = by.pass_time() if story else self.story.pass_time()
        Send.objects.filter(effect_id=self.row.pk, outcome__isnull=True).update(outcome="unknown", finished_at=now)
        epoch = self.row.epoch if epoch is None else epoch
        Send.objects.create(
            effect=self.row,
            job=by.job,
            attempt_id=by.job.attempt_id,
            fence=by.job.fence,
            number=len(self.sends) + 1,
            epoch=epoch,
            provider_key=provider_key(
                namespace="tests",
                tenant="",
                provider=self.row.provider,
                business_key=self.row.business_key,
                effect_name=self.row.name,
                epoch=epoch,
            ),
            request_digest=self.row.request_digest,
            started_at=now,
            deadline_at=now + SECOND,
            settled_at=now + SECOND + settle,
        )
        return self._rejoin(job=by.job, epoch=epoch)

    def leave(self, by: Story) -> None:
        """Let another job take the effect over; the former owner is remembered."""
        mine = [send for send in self.sends if send.job_id == self.row.job_id]
        EffectStake.objects.update_or_create(
            effect=self.row,
            job_id=self.row.job_id,
            defaults={
                "attempt_id": mine[-1].attempt_id if mine else None,
                "required": self.row.required,
                "owned": True,
                "created_at": by.pass_time(),
            },
        )

    def answer(self, outcome: str, **fields: Any) -> EffectStory:
        """Record what the newest request taught: confirmed, rejected or unknown."""
        newest = self.sends[-1]
        told = {"provider_ref": "ch_1", "provider_request_id": "req_1"} if outcome == "confirmed" else {"reason": "no"}
        Send.objects.filter(pk=newest.pk).update(
            **{"outcome": outcome, "finished_at": self.story.pass_time(), **told, **fields}
        )
        if outcome == "confirmed":
            return self._rejoin(resolved_by="send", resolved_at=self.story.now, **told)
        return self._rejoin()

    def ask(self, verdict: str, *, final: bool = False, actor: str = "") -> EffectStory:
        """Ask the provider what happened; a final "not found" settles the unclear sends."""
        now = self.story.pass_time(timedelta(seconds=5))
        Reconciliation.objects.create(
            effect=self.row,
            attempt_id=None if actor else self.story.job.attempt_id,
            actor=actor,
            created_at=now,
            verdict=verdict,
            is_final=final or verdict == "succeeded",
            provider_ref="ch_9" if verdict == "succeeded" else "",
            evidence=json.dumps({"asked": "by key"}),
        )
        if actor:
            self.story.decide("resolve", actor=actor, effect_id=self.row.pk)
        if verdict == "succeeded":
            by = "operator" if actor else "reconciliation"
            return self._rejoin(resolved_by=by, resolved_at=now, provider_ref="ch_9")
        if final:
            unclear = [send.pk for send in self.sends if send.outcome in (None, "unknown")]
            Send.objects.filter(pk__in=unclear).update(outcome="not_applied", finished_at=now)
        return self._rejoin()

    def review(self) -> EffectStory:
        """Leave it to a human whether the effect was applied."""
        return self._rejoin(needs_review=True, review_reason="An earlier send may have been applied.")

    def abandon(self) -> EffectStory:
        """Accept that the outcome stays unknown."""
        return self._set(
            state="abandoned",
            resolved_by="policy",
            resolved_at=self.story.pass_time(),
            review_reason="A lost effect is accepted.",
        )

    def _rejoin(self, **fields: Any) -> EffectStory:
        state = join((send.outcome for send in self.sends), resolved=bool(fields.get("resolved_at")))
        return self._set(state=state.value, **fields)

    def _set(self, **fields: Any) -> EffectStory:
        for name, value in fields.items():
            setattr(self.row, name, value)
        self.row.save(update_fields=list(fields))
        return self
