"""The only writer of effects, sends, reconciliations and adoptions.

An intent is a decision and needs the ownership of the job; evidence (what a provider answered) needs none: a stale
worker's is taken too. Locks are taken in one order: job, effect, send.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef

from django_jobs import telemetry
from django_jobs.domain.compensation import COMPENSATION_EFFECT
from django_jobs.domain.effects import (
    Action,
    AfterReconcile,
    Confirmed,
    Decision,
    EffectFacts,
    Meaning,
    Outcome,
    Reconciliation,
    Rejected,
    after_reconcile,
    decide,
    join,
    settled_by_rejection,
)
from django_jobs.domain.facts import UNCLEAR
from django_jobs.domain.identity import provider_key
from django_jobs.domain.ids import uuid7
from django_jobs.domain.retry import RetryPolicy
from django_jobs.domain.states import EffectState, SendOutcome
from django_jobs.exceptions import EffectTooLateError, JobCancelled
from django_jobs.models import CancelRequest, Job, Send, SideEffect
from django_jobs.models import Reconciliation as ReconciliationRow
from django_jobs.store.adoptions import keep_adoption
from django_jobs.store.brief import briefly
from django_jobs.store.completion import lock_for_completion
from django_jobs.store.effect_rows import (
    ABANDONED,
    BY_RECONCILIATION,
    BY_SEND,
    Intent,
    facts_of,
    json_text,
    namespace,
    new_effect,
    past,
    promised,
    receipt_of,
    storable,
    write_intent,
)
from django_jobs.store.leases import Held, groups_of
from django_jobs.store.stakes import keep_asker, keep_former_owner
from django_jobs.store.times import read_now

_IDLE = timedelta(seconds=5)  # a host that vanishes inside one of these short transactions holds nothing for longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Intended:
    """What was decided about an effect, under its lock, and what the next step needs.

    ``send_number`` and ``key`` are those of the send that was recorded, or of the newest one; ``receipt`` is set when
    the effect is applied already. ``operation_id`` is the job that sent first: it stays when another job takes over.
    """

    decision: Decision
    facts: EffectFacts
    effect_id: uuid.UUID
    owner_id: uuid.UUID
    request: str
    provider_ref: str
    send_number: int
    key: str
    deadline: datetime
    first_sent_at: datetime
    operation_id: str
    questions: int
    receipt: Confirmed | None


def intend(held: Held, intent: Intent, *, sending: bool = True) -> Intended:
    """Decide what may be done with an effect, and record it before anything is done; one short transaction.

    Safe to repeat with the same intent: a send that is recorded already under its id is found again. With
    ``sending=False`` nothing is sent; only what ends the question (review, abandonment) is recorded.

    Raises:
        LeaseLostError: The attempt no longer owns the job.
        EffectTooLateError: This would be the first send, and the job is worth nothing any more.
        JobCancelled: Somebody wants the job cancelled, and no send of this effect is unclear.
    """
    with transaction.atomic(using=held.using):
        lock_for_completion(held, idle=_IDLE, operation="effect")
        now = read_now(held.using)
        effect = _locked(intent, held, now)
        sends = sends_of(effect)
        facts = facts_of(effect, sends, intent, job_id=held.job_id, now=now)
        mine = next((send for send in sends if send.pk == intent.send_id and send.outcome is None), None)
        decision = _again(mine) if mine else _decide(facts, sends, held, intent)
        if not decision.may_send:
            _act(effect, sends, decision, held=held, now=now)
        elif sending and mine is None:
            _refuse_unwanted(sends, intent, held)
            _refuse_useless(sends, intent, now)
            _send(effect, sends, intent, decision=decision, held=held, now=now)
        if effect.job_id != held.job_id and decision.action is not Action.ADOPT:
            keep_asker(effect, held, required=intent.required, now=now)
    if decision.may_send and sending:
        told = {"job_id": held.job_id, "name": intent.name, "provider": intent.provider, **groups_of(held)}
        telemetry.emit("effect.send", number=len(sends), **told)
    return _intended(effect, sends, facts, decision, held=held)


def _locked(intent: Intent, held: Held, now: datetime) -> SideEffect:
    """Insert the effect or find it, and lock it; two jobs with one business key meet here.

    Found and yet not there: pruning deleted it while this waited for its lock. The second insert is then the first.
    """
    rows = SideEffect.objects.using(held.using)
    found = rows.select_for_update(no_key=True).filter(
        tenant=intent.tenant, provider=intent.provider, business_key=intent.business_key, name=intent.name
    )
    rows.bulk_create([new_effect(intent, job_id=held.job_id, now=now)], ignore_conflicts=True)
    effect = found.first()
    if effect is None:
        rows.bulk_create([new_effect(intent, job_id=held.job_id, now=now)], ignore_conflicts=True)
        effect = found.get()
    return effect


def sends_of(effect: SideEffect) -> list[Send]:
    """Return the sends of an effect in their order."""
    return list(Send.objects.using(effect._state.db).filter(effect_id=effect.pk).order_by("number"))  # noqa: SLF001


def _again(mine: Send) -> Decision:
    return Decision(action=Action.SEND, why="This send was recorded before the reply was lost.", epoch=mine.epoch)


def _decide(facts: EffectFacts, sends: Sequence[Send], held: Held, intent: Intent) -> Decision:
    twice = [send for send in sends if send.attempt_id == held.attempt_id and send.request_digest != intent.digest]
    if twice:
        return Decision(
            action=Action.CHANGED,
            why=(
                f"This attempt has sent it with another request ({twice[0].request_digest}, now {intent.digest}). "
                "In a loop, pass key= with the id of what each effect is about."
            ),
        )
    return decide(facts)


def _refuse_unwanted(sends: Sequence[Send], intent: Intent, held: Held) -> None:
    """Begin nothing for a cancelled job; what may have been applied is still found out, also by the same request.

    The holder hears of a request within a second; this looks for one itself, under the lock that a request needs too.
    """
    if any((send.outcome or "open") in UNCLEAR for send in sends):
        return
    asked = CancelRequest.objects.filter(job_id=OuterRef("pk"), generation=OuterRef("generation"))
    if intent.cancelled or Job.objects.using(held.using).filter(Exists(asked), pk=held.job_id).exists():
        msg = f"The effect {intent.name!r} was not sent: somebody asked that the job be cancelled."
        raise JobCancelled(msg)


def _refuse_useless(sends: Sequence[Send], intent: Intent, now: datetime) -> None:
    if not sends and intent.useful_until is not None and now >= intent.useful_until:
        msg = (
            f"The effect {intent.name!r} was not sent: the job was useful only until "
            f"{intent.useful_until:%Y-%m-%d %H:%M:%S} UTC, and nothing has been sent for it yet."
        )
        raise EffectTooLateError(msg)


def _send(
    effect: SideEffect, sends: list[Send], intent: Intent, *, decision: Decision, held: Held, now: datetime
) -> None:
    """Record a request before it is made; whoever sends owns the effect from then on."""
    close_open(sends, now)
    if effect.job_id != held.job_id:
        keep_former_owner(effect, sends, now)
    if not any((send.outcome or "open") in UNCLEAR for send in sends):
        write_intent(effect, intent)
    deadline = now + intent.call
    send = Send(
        id=intent.send_id,
        effect_id=effect.pk,
        job_id=held.job_id,
        attempt_id=held.attempt_id,
        fence=held.number,
        number=len(sends) + 1,
        epoch=decision.epoch,
        provider_key=_key(effect, sends, intent, decision.epoch, now),
        request_digest=intent.digest,
        started_at=now,
        deadline_at=deadline,
        settled_at=deadline + max(timedelta(seconds=effect.settle_seconds), intent.guarantees.settle),
    )
    send.save(using=held.using, force_insert=True)
    sends.append(send)
    effect.job_id, effect.epoch = held.job_id, decision.epoch
    effect.required, effect.on_ambiguous = intent.required, intent.on_ambiguous
    rejoin(effect, sends, now)
    effect.save()


def close_open(sends: Sequence[Send], now: datetime, *, over: bool = False) -> None:
    """Close sends without a recorded answer as unclear; with ``over`` only those whose deadline has passed."""
    for send in sends:
        if send.outcome is None and (not over or send.deadline_at <= now):
            send.outcome, send.finished_at = SendOutcome.UNKNOWN.value, now
            send.reason = "No answer was recorded."
            send.save(update_fields=["outcome", "finished_at", "reason"])


def _key(effect: SideEffect, sends: Sequence[Send], intent: Intent, epoch: int, now: datetime) -> str:
    """Return the provider key of an epoch: the one that was used, whatever the code says by now, else a new one."""
    used = next((send.provider_key for send in sends if send.epoch == epoch), None)
    if used is not None:
        return used
    return provider_key(
        namespace=namespace(intent, effect._state.db or "default", now),  # noqa: SLF001
        tenant=intent.tenant,
        provider=intent.provider,
        business_key=intent.business_key,
        effect_name=intent.name,
        epoch=epoch,
        alphabet=intent.guarantees.key_alphabet,
        max_length=intent.guarantees.key_max_length,
    )


def _act(effect: SideEffect, sends: Sequence[Send], decision: Decision, *, held: Held, now: datetime) -> None:
    """Write down what a decision other than a send means for the row."""
    match decision.action:
        case Action.ADOPT:
            _adopt(effect, held, now)
            return
        case Action.REVIEW:
            close_open(sends, now, over=True)
            effect.needs_review, effect.review_reason = True, decision.why
            telemetry.emit("effect.review", reason=decision.why, **_told(held, effect))
        case Action.ABANDON if effect.state != EffectState.ABANDONED:
            close_open(sends, now, over=True)
            effect.state, effect.review_reason = EffectState.ABANDONED.value, decision.why
            effect.resolved_by, effect.resolved_at = ABANDONED, now
            telemetry.emit("effect.abandoned", reason=decision.why, **_told(held, effect))
        case Action.WAIT if effect.waiting_since is None and effect.job_id == held.job_id:
            effect.waiting_since = now
        case _:
            return
    rejoin(effect, sends, now)
    effect.save()


def _adopt(effect: SideEffect, held: Held, now: datetime) -> None:
    keep_adoption(effect, held, now)
    telemetry.emit(
        "effect.adopted",
        owner_id=effect.job_id,
        compared=effect.request_digest != "",  # pruning removes the digest with the content
        **_told(held, effect),
    )


def rejoin(effect: SideEffect, sends: Sequence[Send], now: datetime, *, found_by: str = "") -> None:
    """Recompute the effect from all of its sends, unless ``found_by`` names who found it applied.

    Nothing leaves "succeeded".
    """
    succeeded = effect.state == EffectState.SUCCEEDED
    abandoned = effect.state == EffectState.ABANDONED
    state = join((send.outcome for send in sends), resolved=succeeded or bool(found_by), abandoned=abandoned)
    if state is EffectState.SUCCEEDED and not succeeded:
        effect.resolved_by, effect.resolved_at = found_by or BY_SEND, now
    effect.state = state.value
    if state in (EffectState.SUCCEEDED, EffectState.REJECTED):
        effect.needs_review, effect.waiting_since = False, None
    effect.revision += 1


def _intended(
    effect: SideEffect, sends: Sequence[Send], facts: EffectFacts, decision: Decision, *, held: Held
) -> Intended:
    newest = sends[-1] if sends else None
    return Intended(
        decision=decision,
        facts=facts,
        effect_id=effect.pk,
        owner_id=effect.job_id,
        request=effect.request,
        provider_ref=effect.provider_ref,
        send_number=newest.number if newest else 0,
        key=newest.provider_key if newest else "",
        deadline=newest.deadline_at if newest else facts.now,
        first_sent_at=sends[0].started_at if sends else facts.now,
        operation_id=str(sends[0].job_id if sends else held.job_id),
        questions=_questions(effect, sends),
        receipt=receipt_of(effect, sends) if effect.state == EffectState.SUCCEEDED else None,
    )


def _questions(effect: SideEffect, sends: Sequence[Send]) -> int:
    """Count what was tried to find out: sends without a clear answer, and questions to the provider."""
    asked = ReconciliationRow.objects.using(effect._state.db).filter(effect_id=effect.pk).count()  # noqa: SLF001
    return asked + sum((send.outcome or "open") in UNCLEAR for send in sends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What is known after an answer was recorded; ``receipt`` is set when the effect is applied."""

    state: EffectState
    receipt: Confirmed | None


def record(held: Held, send_id: uuid.UUID, outcome: Outcome) -> Recorded:
    """Record what one request taught. Evidence: it needs no ownership, and repeating it changes nothing.

    A confirmation is taken whatever was concluded before; any other answer replaces only an open or unclear one.
    A permanent rejection that says by itself ``key_is_burnt=True`` settles the unclear sends with the same key too; one
    that says nothing about the key is judged by what was promised when the row's request was first sent.
    """
    with briefly(held.using):
        effect_id = Send.objects.using(held.using).values_list("effect_id", flat=True).get(pk=send_id)
        effect = SideEffect.objects.using(held.using).select_for_update(no_key=True).get(pk=effect_id)
        sends = sends_of(effect)
        send = next(item for item in sends if item.pk == send_id)
        before, now = send.outcome, read_now(held.using)
        if _may_replace(before, outcome):
            _write_outcome(effect, send, outcome, now)
            if isinstance(outcome, Rejected):
                _settle_key(effect, sends, send, remembered=outcome.permanent and outcome.key_is_burnt is True, now=now)
            rejoin(effect, sends, now)
            effect.save()
        state = EffectState(effect.state)
        receipt = receipt_of(effect, sends) if state is EffectState.SUCCEEDED else None
    _tell(held, effect, send, before)
    return Recorded(state=state, receipt=receipt)


def _may_replace(stored: str | None, outcome: Outcome) -> bool:
    if isinstance(outcome, Confirmed):
        return stored != SendOutcome.CONFIRMED
    return (stored or "open") in UNCLEAR


def _write_outcome(effect: SideEffect, send: Send, outcome: Outcome, now: datetime) -> None:
    send.finished_at, send.status = now, outcome.status
    send.provider_request_id = storable(outcome.provider_request_id or "", 255)
    if isinstance(outcome, Confirmed):
        send.outcome, send.reason = SendOutcome.CONFIRMED.value, ""
        send.provider_ref, send.replayed = storable(outcome.provider_ref, 255), outcome.replayed
        if effect.state != EffectState.SUCCEEDED:
            effect.provider_ref, effect.provider_request_id = send.provider_ref, send.provider_request_id
            effect.result = json_text(outcome.result)
    elif isinstance(outcome, Rejected):
        send.outcome, send.reason = SendOutcome.REJECTED.value, storable(outcome.reason)
        by_default = outcome.permanent and effect.caches_failures
        send.permanent = outcome.permanent
        send.key_is_burnt = by_default if outcome.key_is_burnt is None else bool(outcome.key_is_burnt)
    else:
        send.outcome, send.reason = SendOutcome.UNKNOWN.value, storable(outcome.reason)
    send.save()


def _settle_key(
    effect: SideEffect, sends: Sequence[Send], answered_send: Send, *, remembered: bool, now: datetime
) -> None:
    settled = settled_by_rejection(
        [past(send) for send in sends],
        answered=answered_send.number,
        remembered=remembered,
        guarantees=promised(effect),
        calm_at=max([now, *(send.settled_at for send in sends if (send.outcome or "open") in UNCLEAR)]),
    )
    for send in sends:
        if send.number in settled:
            send.outcome, send.finished_at = SendOutcome.REJECTED.value, send.finished_at or now
            send.permanent, send.key_is_burnt = True, True
            why = f"The provider remembers the rejection of send {answered_send.number} for its key."
            send.reason = storable(f"{send.reason} {why}".strip())
            send.save()


def _told(held: Held, effect: SideEffect) -> dict[str, object]:
    return {"job_id": held.job_id, "effect_id": effect.pk, "name": effect.name, **groups_of(held)}


def _tell(held: Held, effect: SideEffect, send: Send, before: str | None) -> None:
    telemetry.emit(f"effect.{send.outcome}", number=send.number, **_told(held, effect))
    if send.outcome == SendOutcome.CONFIRMED and before in (SendOutcome.NOT_APPLIED, SendOutcome.REJECTED):
        telemetry.emit(
            "owner.alert",
            reason="an effect that was judged not applied was applied",
            job_id=effect.job_id,
            owner=effect.owner,
            severity="critical" if effect.name == COMPENSATION_EFFECT else "warning",
        )


def answered(
    held: Held, intended: Intended, intent: Intent, found: Reconciliation, *, policy: RetryPolicy
) -> AfterReconcile:
    """Store a provider's answer to the question what happened, and what follows from it. Evidence, like :func:`record`.

    ``intended.facts.now`` is taken as the time of the question: it was read before the provider was asked.
    """
    with briefly(held.using):
        rows = SideEffect.objects.using(held.using).select_for_update(no_key=True)
        effect = rows.get(pk=intended.effect_id)
        sends, now = sends_of(effect), read_now(held.using)
        facts = facts_of(effect, sends, intent, job_id=held.job_id, now=intended.facts.now)
        after = _meaning(facts, found, intended, policy)
        row = ReconciliationRow(
            id=uuid7(),
            effect_id=effect.pk,
            attempt_id=held.attempt_id,
            created_at=now,
            verdict=found.verdict.value,
            is_final=after.final,
            provider_ref=storable(found.provider_ref or "", 255),
            evidence=json_text(found.evidence),
        )
        row.save(using=held.using, force_insert=True)
        conclude(effect, sends, row, after, burnt=facts.guarantees.caches_failures, now=now)
        effect.save()
    telemetry.emit("effect.reconciled", verdict=found.verdict.value, final=after.final, **_told(held, effect))
    return after


def _meaning(facts: EffectFacts, found: Reconciliation, intended: Intended, policy: RetryPolicy) -> AfterReconcile:
    applied = after_reconcile(facts, found, asked=intended.questions + 1, policy=policy)
    if applied.meaning is Meaning.APPLIED or facts.sends == intended.facts.sends:
        return applied
    return AfterReconcile(meaning=Meaning.DECIDE, why="While the provider was asked, more was sent or learned.")


def conclude(
    effect: SideEffect,
    sends: Sequence[Send],
    row: ReconciliationRow,
    after: AfterReconcile,
    *,
    burnt: bool,
    now: datetime,
    by: str = BY_RECONCILIATION,
) -> None:
    """Apply a final answer of ``by``. When the effect is found applied, the requests stay as they were seen."""
    if after.meaning is Meaning.APPLIED and effect.state != EffectState.SUCCEEDED:
        effect.provider_ref = row.provider_ref
    if after.meaning in (Meaning.REJECTED, Meaning.NOT_APPLIED):
        rejected = after.meaning is Meaning.REJECTED
        for send in sends:
            if (send.outcome or "open") in UNCLEAR:
                send.outcome = (SendOutcome.REJECTED if rejected else SendOutcome.NOT_APPLIED).value
                send.finished_at = send.finished_at or now
                send.reason = storable(" ".join(filter(None, (send.reason, after.why))))
                send.permanent, send.key_is_burnt = rejected, rejected and burnt
                send.save()
    if after.meaning is Meaning.WAIT and effect.waiting_since is None:
        effect.waiting_since = now
    rejoin(effect, sends, now, found_by=by if after.meaning is Meaning.APPLIED else "")
