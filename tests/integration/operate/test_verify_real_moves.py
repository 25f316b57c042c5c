"""The invariants hold after whatever the store itself does, in any order."""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from django_jobs import clock
from django_jobs.domain.effects import Confirmed, Guarantees, Outcome, Reconciliation, Rejected, Unknown, Verdict
from django_jobs.domain.identity import fingerprint, request_digest, scope_text
from django_jobs.domain.ids import uuid7
from django_jobs.domain.judgement import Judgement
from django_jobs.domain.poison import cleared, count_loss
from django_jobs.domain.providers import Dedupe
from django_jobs.domain.retry import RetryPolicy, count_failure, count_free
from django_jobs.domain.states import DeadReason, ErrorClass, LossCause
from django_jobs.exceptions import ActionRefusedError, EffectsOpenError
from django_jobs.models import Attempt, Job, Send, SideEffect
from django_jobs.operate.cancel import Cancel
from django_jobs.operate.resolve import Resolve
from django_jobs.operate.verify import verify
from django_jobs.store import (
    Claimed,
    Failure,
    Loss,
    cancel_running,
    dead_letter,
    enqueue,
    fail,
    promote,
    release,
    rescue,
    snooze,
    succeed,
)
from django_jobs.store import claim as take
from django_jobs.store.completion import remember_step
from django_jobs.store.effect_rows import Intent
from django_jobs.store.effects import answered, intend, record
from django_jobs.store.keys import key_holder, note_duplicate
from tests.factories import JOB_TYPE, QUEUE
from tests.factories_decisions import operator
from tests.scenes import BUDGET, failure, new_job, request

ROUNDS = 150
PROMISES = (
    Guarantees(dedupe=Dedupe.KEY, key_lifetime=timedelta(hours=2)),
    Guarantees(dedupe=Dedupe.KEY, key_lifetime=timedelta(hours=2), can_reconcile=True, caches_failures=True),
    Guarantees(dedupe=Dedupe.NATURAL),
    Guarantees(dedupe=Dedupe.NONE, can_reconcile=True),
    Guarantees(dedupe=Dedupe.NONE),
)


class Walk:
    """A seeded walk over a handful of jobs: everything that can happen to them happens, in random order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = datetime(2026, 11, 29, 12, tzinfo=UTC)
        self.held: list[Claimed] = []

    def run(self) -> None:
        """Make the moves; the clock of the database is the walk's."""
        moves = [self.enqueue, self.claim, self.claim, self.end, self.end, self.act, self.act, self.wait]
        moves = [*moves, *moves, self.cancel, self.resolve]
        with clock.override(lambda: self.now):
            for _ in range(ROUNDS):
                self.now += timedelta(seconds=1)
                self.random.choice(moves)()

    def wait(self) -> None:
        """Let a long time pass, and what has become due be promoted."""
        self.now += timedelta(minutes=self.random.choice([1, 30]))
        promote([QUEUE], using="default")

    def enqueue(self) -> None:
        """Record a job, half of them under one of three keys; a held key answers with a duplicate."""
        key = f"order:{self.random.randrange(3)}" if self.random.random() < 0.5 else ""
        scope = scope_text("", JOB_TYPE) if key else ""
        new = new_job(key=key, key_scope=scope, payload_fingerprint=fingerprint("{}"))
        if enqueue(new, using="default") is not None:
            return
        holder = key_holder(scope, key, using="default")
        assert holder is not None
        if holder.is_live:
            note_duplicate(holder.job_id, dead=False, using="default")
        else:
            taken = new_job(key=key, key_scope=scope, payload_fingerprint=fingerprint("{}"), replaces=holder.job_id)
            assert enqueue(taken, using="default") is not None

    def claim(self) -> None:
        """Claim something, suspects too."""
        suspects = self.random.random() < 0.3
        self.held += take(request(suspects=suspects), using="default")

    def cancel(self) -> None:
        """Let somebody cancel one of the jobs, waiting or running; what is refused changes nothing."""
        job = self.random.choice([*Job.objects.order_by("id"), None])
        if job is not None and self.random.random() < 0.5:
            decision = Cancel(job.pk, using="default")
            with contextlib.suppress(ActionRefusedError):
                decision.submit(operator(), digest=decision.plan().digest)

    def resolve(self) -> None:
        """Let somebody judge one of the effects, in one of all ways; what is refused changes nothing."""
        effect = self.random.choice([*SideEffect.objects.order_by("id"), None])
        if effect is None:
            return
        verdict = self.random.choice(list(Judgement))
        given = {"provider_ref": "ch_7"} if verdict is Judgement.APPLIED else {"evidence": "seen in the dashboard"}
        decision = Resolve(effect.pk, verdict, **given, using="default")
        with contextlib.suppress(ActionRefusedError):
            decision.submit(operator(), digest=decision.plan().digest)

    def end(self) -> None:
        """Let one of the running attempts end in one of all ways."""
        if self.held:
            held = self.held.pop(self.random.randrange(len(self.held)))
            ways: list[Callable[[Claimed], object]] = [
                self._succeed, self._succeed, self._fail, self._dead, self._snooze, self._lose, self._release,
                self._cancel_running,
            ]  # fmt: skip
            self.random.choice(ways)(held)

    def _succeed(self, held: Claimed) -> None:
        try:
            succeed(held, result=None, budget=BUDGET)
        except EffectsOpenError:
            self._dead(held)

    def _failed(self, held: Claimed, error_class: ErrorClass) -> Failure:
        counters = count_failure(held.counters, error_class, same=True)
        return Failure(error=failure().error, error_class=error_class, counters=counters)

    def _fail(self, held: Claimed) -> None:
        error_class = self.random.choice([ErrorClass.UNKNOWN, ErrorClass.TRANSIENT])
        delay = timedelta(seconds=self.random.choice([0, 60]))
        fail(held, failure=self._failed(held, error_class), delay=delay, budget=BUDGET)

    def _dead(self, held: Claimed) -> None:
        failed = self._failed(held, ErrorClass.PERMANENT)
        dead_letter(held, failure=failed, reason=DeadReason.PERMANENT, budget=BUDGET)

    def _snooze(self, held: Claimed) -> None:
        for_evidence = self.random.random() < 0.5
        counters = cleared(held.counters)
        snooze(
            held,
            delay=timedelta(minutes=5),
            counters=counters if for_evidence else count_free(counters),
            message="later",
            for_evidence=for_evidence,
        )

    def _lose(self, held: Claimed) -> None:
        cause = self.random.choice([LossCause.EXIT, LossCause.EXIT, LossCause.SILENT, LossCause.EXPIRED])
        if cause is LossCause.EXPIRED:
            self.now += timedelta(minutes=2)
        counters = count_loss(held.counters, cause)
        reason = DeadReason.POISON if counters.lost >= 3 else None
        loss = Loss(cause=cause, counters=counters, delay=timedelta(0), dead_reason=reason, message="gone")
        assert rescue(held, loss=loss)

    def _cancel_running(self, held: Claimed) -> None:
        cancel_running(held, message="asked to", budget=BUDGET)

    def _release(self, held: Claimed) -> None:
        if not release(held, message="stopping"):
            self._lose(held)

    def act(self) -> None:
        """Ask for an effect in one of the running attempts, send if allowed, and perhaps learn what came of it."""
        if not self.held:
            return
        held, place = self.random.choice(self.held), self.random.randrange(len(PROMISES))
        intent = self._intent(held, place)
        intended = intend(held, intent)
        if intended.decision.may_send:
            self.now += timedelta(seconds=self.random.choice([1, 20]))
            answer = self._answer()
            if answer is not None:
                record(held, intent.send_id, answer)
        elif intended.decision.action == "reconcile":
            verdict = self.random.choice(list(Verdict))
            answered(held, intended, intent, Reconciliation(verdict), policy=RetryPolicy())
        if self.random.random() < 0.2 and not Job.objects.get(pk=held.job_id).steps.exists():
            remember_step(held, "reserve", "{}")

    def _intent(self, held: Claimed, place: int) -> Intent:
        text = f'{{"act":{place}}}'
        return Intent(
            name=f"act {place}",
            provider="payments",
            business_key=f"order:{self.random.randrange(4)}",
            tenant="",
            request=text,
            digest=request_digest(text),
            guarantees=PROMISES[place],
            required=self.random.random() < 0.5,
            on_ambiguous="accept" if place == len(PROMISES) - 1 else "review",
            owner="billing",
            retry="{}",
            call=timedelta(seconds=5),
            send_id=uuid7(),
            useful_until=held.useful_until,
            namespace="tests",
        )

    def _answer(self) -> Outcome | None:
        answers: list[Outcome | None] = [
            None,
            Unknown("timed out"),
            Unknown("502"),
            Confirmed(f"ref-{uuid.uuid4()}"),
            Rejected("busy", permanent=False),
            Rejected("declined", permanent=True, key_is_burnt=True),
        ]
        return self.random.choice(answers)


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_store_does_is_clean(seed: int) -> None:
    """After every kind of move in random order, no invariant is violated."""
    Walk(seed).run()

    report = verify(using="default", patience=timedelta(days=36500))  # the story's time is long over

    assert {item.invariant.name: item.ids for item in report.violated} == {}
    assert len(set(Attempt.objects.values_list("outcome", flat=True))) >= 5
    assert Send.objects.count() > 5
    assert SideEffect.objects.exclude(state="succeeded").exists()
