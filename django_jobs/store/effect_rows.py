"""What the rows of one effect say: the facts that a decision looks at, and the receipt of what was applied."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, cast

from django_jobs.domain.effects import Confirmed, Dedupe, EffectFacts, Guarantees, PastSend
from django_jobs.domain.facts import UNCLEAR
from django_jobs.domain.identity import canonical
from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import CompensationOutcome, EffectState, SendOutcome, is_unfinished
from django_jobs.exceptions import DefinitionError, PayloadError
from django_jobs.models import Compensation, Installation, Job, Reconciliation, Send, SideEffect
from django_jobs.store.compensations import taking_back_row

OnAmbiguous = Literal["review", "resend", "accept"]

REMOVED = "removed"  # stands for a digest that pruning took
TEXT_LIMIT = 8192
ABANDONED = "policy"
BY_SEND = "send"
BY_RECONCILIATION = "reconciliation"
BY_OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One question of a handler: may this effect be sent?

    ``call`` is how long the next request may take; ``send_id`` the id of the send that may come of it, made by the
    asker, so that after a lost reply it can find out whether the send was recorded. ``useful_until`` refuses a first
    send, and ``cancelled`` a send before which nothing is unclear. ``operation`` is the declared name of what is done,
    by which its compensation is found, and ``former_operations`` are names that it had before.
    """

    name: str
    provider: str
    business_key: str
    tenant: str
    request: str
    digest: str
    guarantees: Guarantees
    required: bool
    on_ambiguous: OnAmbiguous
    owner: str
    retry: str
    call: timedelta
    send_id: uuid.UUID
    useful_until: datetime | None
    namespace: str
    cancelled: bool = False
    operation: str = ""
    former_operations: tuple[str, ...] = ()


def compensation_of(effect: SideEffect) -> Literal["none", "open", "succeeded"]:
    """Say whether an effect is being, or has been, taken back; only one that was applied is asked about.

    Whoever adopts a receipt and whoever completes on one asks this under the row's lock, under which a compensation is
    decided too.
    """
    if effect.state != EffectState.SUCCEEDED:
        return "none"
    using = effect._state.db or "default"  # noqa: SLF001
    outcomes = list(Compensation.objects.using(using).filter(effect_id=effect.pk).values_list("outcome", flat=True))
    standing = [outcome for outcome in outcomes if outcome != CompensationOutcome.VOID]
    if not standing and outcomes:  # all were given up; one of them may have been applied all the same
        found = taking_back_row(effect, using=using, hold=True)
        return "succeeded" if found is not None and found.state == EffectState.SUCCEEDED else "none"
    return cast('Literal["none", "open", "succeeded"]', standing[0] if standing else "none")


def storable(text: object, limit: int = TEXT_LIMIT) -> str:
    """Return text that every database stores: NUL and lone surrogates escaped, cut to ``limit`` signs."""
    plain = str(text).encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def json_text(value: Mapping[str, Any]) -> str:
    """Return a provider's details as canonical JSON; what cannot be stored is named instead: no evidence is refused."""
    try:
        return canonical(dict(value))
    except (PayloadError, TypeError, ValueError) as error:
        return canonical({"not_stored": storable(error, 500)})


def frozen_guarantees(effect: SideEffect, current: Guarantees, sends: Sequence[Send]) -> Guarantees:
    """Return what was promised for requests that may still be applied; without such, what the code promises now.

    Whether the provider can be asked is always the present code's to say: asking changes nothing. What its answer
    proves about requests that were made before it could be asked is said by :func:`facts_of`.
    """
    if not any((send.outcome or "open") in UNCLEAR for send in sends):
        return current
    stored = promised(effect)
    lag = max(current.visible_after, stored.visible_after)
    return replace(stored, can_reconcile=current.can_reconcile, visible_after=lag, docs=current.docs)


def promised(effect: SideEffect) -> Guarantees:
    """Return the promise that the row holds; a key whose lifetime is not known protects nothing."""
    lifetime = effect.key_lifetime_seconds
    dedupe = Dedupe.NONE if effect.dedupe == Dedupe.KEY and not lifetime else Dedupe(effect.dedupe)
    return Guarantees(
        dedupe=dedupe,
        key_lifetime=timedelta(seconds=lifetime) if dedupe is Dedupe.KEY and lifetime else None,
        key_alphabet=cast('Literal["ascii", "uuid"]', effect.key_alphabet),
        key_max_length=effect.key_max_length,
        caches_failures=effect.caches_failures,
        can_reconcile=effect.can_reconcile,
        settle=timedelta(seconds=effect.settle_seconds),
        visible_after=timedelta(seconds=effect.visible_after_seconds),
    )


def past(send: Send) -> PastSend:
    """Return a stored send as the rules see it."""
    rejected = send.outcome == SendOutcome.REJECTED
    return PastSend(
        number=send.number,
        started_at=send.started_at,
        outcome=cast("str", send.outcome),
        epoch=send.epoch,
        digest=send.request_digest,
        job_id=send.job_id,
        key=send.provider_key,
        provider_request_id=send.provider_request_id or None,
        key_is_burnt=send.key_is_burnt if rejected else None,
    )


def facts_of(
    effect: SideEffect, sends: Sequence[Send], intent: Intent, *, job_id: uuid.UUID, now: datetime
) -> EffectFacts:
    """Gather what :func:`django_jobs.domain.effects.decide` looks at; the caller holds the effect's lock."""
    unclear = [send for send in sends if (send.outcome or "open") in UNCLEAR]
    guarantees = frozen_guarantees(effect, intent.guarantees, sends)
    return EffectFacts(
        guarantees=guarantees,
        now=now,
        call=intent.call,
        digest=intent.digest,
        sends=tuple(past(send) for send in sends),
        stored_digest=stored_digest(effect, sends),
        settled_at=max((send.settled_at for send in unclear), default=None),
        resolved=_resolved(effect),
        abandoned=effect.state == EffectState.ABANDONED,
        owner_is_me=effect.job_id == job_id,
        owner_unfinished=effect.job_id == job_id or _is_unfinished(effect),
        owner=effect.job_id,
        compensation=compensation_of(effect),
        asked_since_last_send=_asked_since(effect, sends),
        absence_proves=effect.can_reconcile or not unclear,
        on_ambiguous=intent.on_ambiguous,
        operation=intent.operation,
        stored_operation=intent.operation if effect.operation in intent.former_operations else effect.operation,
    )


def stored_digest(effect: SideEffect, sends: Sequence[Send]) -> str | None:
    """Return the digest of what was sent last, None for none.

    Pruning removes it. What was applied is then not compared any more; for what was rejected the present request counts
    as another one, so that it gets a key of its own.
    """
    if not sends:
        return None
    return effect.request_digest or (REMOVED if effect.state == EffectState.REJECTED else None)


def _resolved(effect: SideEffect) -> Literal["", "found", "human"]:
    if effect.state != EffectState.SUCCEEDED or effect.resolved_by == BY_SEND:
        return ""
    return "found" if effect.resolved_by == BY_RECONCILIATION else "human"


def _is_unfinished(effect: SideEffect) -> bool:
    """Say whether the owner will still find out; a dead letter waits for a human and finds nothing out by itself."""
    using = effect._state.db  # noqa: SLF001
    owner = Job.objects.using(using).filter(pk=effect.job_id).only("state", "resolution").first()
    return owner is not None and owner.state != "dead_lettered" and is_unfinished(owner.state, owner.resolution)


def _asked_since(effect: SideEffect, sends: Sequence[Send]) -> bool:
    if not sends:
        return False
    newest = sends[-1]
    asked = Reconciliation.objects.using(effect._state.db).filter(effect_id=effect.pk)  # noqa: SLF001
    last = asked.order_by("-created_at", "-id").first()
    return last is not None and (last.created_at, last.pk) > (newest.started_at, newest.pk)


def receipt_of(effect: SideEffect, sends: Sequence[Send]) -> Confirmed:
    """Return the confirmed outcome as it is stored: the same for the first reader and for every later one."""
    confirmed = next((send for send in sends if send.outcome == SendOutcome.CONFIRMED), None)
    return Confirmed(
        effect.provider_ref,
        provider_request_id=effect.provider_request_id or None,
        status=confirmed.status if confirmed else None,
        replayed=True,
        result=json.loads(effect.result),
    )


def namespace(intent: Intent, using: str, now: datetime) -> str:
    """Return the namespace of provider keys: the setting's, or the one that this database was given when it was made.

    Raises:
        DefinitionError: The stored one is gone although keys were made with it; another one would double effects.
    """
    if intent.namespace:
        return intent.namespace
    rows = Installation.objects.using(using)
    found = rows.first()
    if found is None:
        if Send.objects.using(using).exists():
            msg = (
                "The row with the namespace of provider keys is missing, and keys were made with it: another namespace "
                "would repeat effects. Restore the row, or set DJANGO_JOBS['NAMESPACE'] to the value it had."
            )
            raise DefinitionError(msg)
        fresh = Installation(id=1, namespace=str(uuid.uuid4()), created_at=now)
        rows.bulk_create([fresh], ignore_conflicts=True)
        found = rows.get()
    return found.namespace


def new_effect(intent: Intent, *, job_id: uuid.UUID, now: datetime) -> SideEffect:
    """Return an unsaved row for an effect that nobody has intended before."""
    effect = SideEffect(
        id=uuid7(),
        job_id=job_id,
        tenant=intent.tenant,
        provider=intent.provider,
        business_key=intent.business_key,
        name=intent.name,
        created_at=now,
    )
    write_intent(effect, intent)
    return effect


def write_intent(effect: SideEffect, intent: Intent) -> None:
    """Put the request and the promise that holds for it into the row."""
    promise = intent.guarantees
    effect.request, effect.request_digest = intent.request, intent.digest
    effect.required, effect.on_ambiguous = intent.required, intent.on_ambiguous
    effect.owner, effect.retry_policy = intent.owner, intent.retry
    effect.operation = intent.operation
    effect.dedupe = promise.dedupe.value
    effect.key_lifetime_seconds = promise.key_lifetime.total_seconds() if promise.key_lifetime else None
    effect.key_alphabet, effect.key_max_length = promise.key_alphabet, promise.key_max_length
    effect.caches_failures, effect.can_reconcile = promise.caches_failures, promise.can_reconcile
    effect.settle_seconds = promise.settle.total_seconds()
    effect.visible_after_seconds = promise.visible_after.total_seconds()
