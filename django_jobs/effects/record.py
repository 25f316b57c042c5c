"""One effect from its intent to its receipt: recorded before and after a request that is made outside of transactions.

Whatever ends the process in between leaves a row that says so, and the next attempt goes on from there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any, NoReturn, Protocol, cast

from django_jobs import clock, faults, telemetry
from django_jobs.conf import get_settings
from django_jobs.define.definition import JobDefinition
from django_jobs.domain.effects import (
    Action,
    Confirmed,
    Decision,
    Meaning,
    Outcome,
    Reconciliation,
    Rejected,
    Unknown,
    Verdict,
)
from django_jobs.domain.identity import canonical, check_key, check_name, request_digest
from django_jobs.domain.ids import uuid7
from django_jobs.domain.lease import call_time
from django_jobs.domain.retry import RetryPolicy, backoff, wish_within
from django_jobs.domain.states import EffectState
from django_jobs.effects.adapter import NAME_LIMIT, Operation, resolve
from django_jobs.effects.call import DeadlinePassedError, EffectCall
from django_jobs.effects.patience import patiently
from django_jobs.exceptions import (
    DefinitionError,
    EffectChangedError,
    EffectKeyReusedError,
    EffectNeedsReviewError,
    EffectRejected,
    EffectUncertain,
    NoTimeLeftError,
    PayloadError,
    RateLimited,
    TransientError,
)
from django_jobs.masking import described, redactor
from django_jobs.store import Claimed, Held
from django_jobs.store.effect_rows import Intent, OnAmbiguous
from django_jobs.store.effects import Intended, Recorded, answered, intend, record
from django_jobs.store.leases import groups_of

ROUNDS = 5  # of deciding anew within one attempt, after an answer that changed nothing for good
EVIDENCE_PATIENCE = timedelta(minutes=10)  # how long an answer is kept in hand for a database that is away
CHOICES = ("review", "resend", "accept")
ZERO = timedelta(0)


class ActiveAttempt(Held, Protocol):
    """What the record of effects needs of a running attempt."""

    open_call_until: float | None
    cancel_requested: bool

    @property
    def claimed(self) -> Claimed:
        """The leased job."""

    @property
    def definition(self) -> JobDefinition:
        """Its type."""

    @property
    def remaining(self) -> timedelta:
        """What is left of the budget."""

    def call_limit(self) -> timedelta:
        """Return the longest time that one call may take."""

    def check_open(self) -> None:
        """Raise when the attempt may not act any more."""


def perform(
    attempt: ActiveAttempt,
    name: str,
    operation: Any,
    *,
    key: str | None,
    required: bool,
    on_ambiguous: str,
    request: Mapping[str, Any],
) -> Confirmed:
    """Do something to the world at most once for its business key, and return the receipt.

    Raises:
        DefinitionError: The operation, a name or the request cannot work; nothing was sent.
        PayloadError: The request cannot be stored; nothing was sent.
        LeaseLostError: The job belongs to somebody else by now; nothing was sent.
        NoTimeLeftError: The rest of the budget is too short for a request.
        EffectRejected: The provider refused; known not applied.
        TransientError: Known not applied this time; later may be better.
        EffectUncertain: Not known yet; the next attempt asks first.
        EffectNeedsReviewError: Only a human can find out.
        EffectChangedError: Asked for with another request although the earlier one may have been applied.
        EffectKeyReusedError: Another job holds the business key in a way that a human must look at.
        JobCancelled: Somebody wants the job cancelled, and nothing is unclear; nothing was sent.
    """
    declared = resolve(operation)
    text = _request_text(name, declared, request)
    intent = _intent(attempt, name, declared, key=key, required=required, on_ambiguous=on_ambiguous, text=text)
    performance = Performance(attempt, declared, intent)
    for _ in range(ROUNDS):
        attempt.check_open()
        receipt = performance.advance()
        if receipt is not None:
            return receipt
    reason = f"The effect {name!r} was decided anew {ROUNDS} times in this attempt."
    raise EffectUncertain(reason)


def _request_text(name: str, declared: Operation, request: Mapping[str, Any]) -> str:
    try:
        return canonical(declared.bind(request))
    except PayloadError as error:
        msg = f"The request of the effect {name!r} cannot be stored: {error}"
        raise PayloadError(msg) from error


def _intent(
    attempt: ActiveAttempt,
    name: str,
    declared: Operation,
    *,
    key: str | None,
    required: bool,
    on_ambiguous: str,
    text: str,
) -> Intent:
    check_name(name, what="effect's name", limit=NAME_LIMIT)
    if key is None and declared.requires_key:
        msg = (
            f"The effect {name!r} needs key=: {declared.name!r} must not act twice for one business act, and the job's "
            'id is not the business act. Pass what the effect means, for example key=f"order:{order.pk}".'
        )
        raise DefinitionError(msg)
    if on_ambiguous not in CHOICES:
        msg = f'on_ambiguous of the effect {name!r} is {on_ambiguous!r}; give "review", "resend" or "accept".'
        raise DefinitionError(msg)
    claimed = attempt.claimed
    return Intent(
        name=name,
        provider=declared.provider,
        operation=declared.name,
        former_operations=declared.aliases,
        business_key=check_key(str(attempt.job_id) if key is None else key),
        tenant=claimed.tenant,
        request=text,
        digest=request_digest(text),
        guarantees=declared.guarantees,
        required=bool(required),
        on_ambiguous=cast("OnAmbiguous", on_ambiguous),
        owner=declared.owner or claimed.owner,
        retry=_policy_text(declared.retry),
        call=min(declared.timeout, attempt.call_limit()),
        send_id=uuid7(),
        useful_until=claimed.useful_until,
        namespace=get_settings().namespace,
    )


def _policy_text(policy: RetryPolicy | None) -> str:
    if policy is None:
        return "{}"
    values = {name: value for name, value in asdict(policy).items() if name not in {"permanent", "transient"}}
    return canonical(values)


class Performance:
    """The steps of one effect within one attempt; :meth:`advance` takes the next one."""

    def __init__(self, attempt: ActiveAttempt, operation: Operation, intent: Intent) -> None:
        self.attempt = attempt
        self.operation = operation
        self.intent = intent
        self.policy = operation.retry or attempt.definition.retry
        stored = json.loads(intent.request)
        self.arguments = operation.restored(stored)
        self.question = operation.restored(stored, asking=True) if operation.ask else {}
        self.ends_at = 0.0

    def advance(self) -> Confirmed | None:
        """Decide and act once; the receipt, or None when the decision must be made anew."""
        self.intent = replace(self.intent, send_id=uuid7(), cancelled=self.attempt.cancel_requested)
        no_time = self._no_time()
        try:
            self.ends_at = clock.boot_seconds() + self.intent.call.total_seconds()  # read before anything is sent
            if no_time is None:
                self.attempt.open_call_until = self.ends_at
            faults.reached("effect.before_intent", using=self.attempt.using)
            intended = self._intend(sending=no_time is None)
            decision = intended.decision
            if no_time is not None and (decision.may_send or decision.action is Action.RECONCILE):
                raise no_time
            if decision.may_send:
                return self._send(intended)
            if decision.action is Action.RECONCILE:
                return self._reconcile(intended)
            return self._settled(intended, decision.why)
        finally:
            self.attempt.open_call_until = None

    def _no_time(self) -> NoTimeLeftError | None:
        try:
            call_time(
                timeout=self.operation.timeout, max_call=self.attempt.call_limit(), remaining=self.attempt.remaining
            )
        except NoTimeLeftError as error:
            return error
        return None

    def _intend(self, *, sending: bool) -> Intended:
        """Record the intent; a lost reply is answered by asking again, which finds the send under its id."""
        return patiently(
            lambda: intend(self.attempt, self.intent, sending=sending),
            using=self.attempt.using,
            limit=self.attempt.remaining,
        )

    def _call(self, intended: Intended) -> EffectCall:
        return EffectCall(
            key=intended.key,
            operation_id=intended.operation_id,
            effect_name=self.intent.name,
            business_key=self.intent.business_key,
            send_number=intended.send_number,
            first_sent_at=intended.first_sent_at,
            deadline=intended.deadline,
            ends_at=self.ends_at,
            sends=intended.facts.sends,
            provider_ref=intended.provider_ref,
            traceparent=self.attempt.claimed.traceparent,
        )

    def _send(self, intended: Intended) -> Confirmed:
        faults.reached("effect.after_intent", using=self.attempt.using)
        outcome = self._request(self._call(intended))
        faults.reached("effect.after_call", using=self.attempt.using)
        outcome = self._normal(outcome)
        recorded = patiently(
            lambda: record(self.attempt, self.intent.send_id, outcome),
            using=self.attempt.using,
            limit=EVIDENCE_PATIENCE,
        )
        faults.reached("effect.after_confirm", using=self.attempt.using)
        return self._after(outcome, recorded)

    def _request(self, call: EffectCall) -> Outcome:
        """Make the request; what cannot be told from an answer is unknown, never an exception that gets lost."""
        began = clock.boot_seconds()
        try:
            call.check_deadline()
            found: Outcome = self.operation.send(call, **self.arguments)
        except DeadlinePassedError as error:
            return Rejected(str(error), permanent=False, key_is_burnt=False)
        except BaseException as error:  # noqa: BLE001  whatever it raised, the request may have been applied
            found = Unknown(_described(error))
        if not isinstance(found, Confirmed | Rejected | Unknown):
            found = Unknown(f"{self.operation.name} returned {type(found).__name__} instead of an outcome.")
        wish = None if isinstance(found, Confirmed) else _positive(found.retry_after)
        self._tell_call(began, type(found).__name__.lower(), wish)
        return found

    def _tell_call(self, began: float, outcome: str, wish: timedelta | None = None) -> None:
        telemetry.emit(
            "downstream.called",
            downstream=self.intent.provider,
            outcome=outcome,
            seconds=clock.boot_seconds() - began,
            retry_after=wish,
            job_id=self.attempt.job_id,
            **groups_of(self.attempt),
        )

    def _normal(self, outcome: Outcome) -> Outcome:
        """Redact what is text for people, and bring an untidy answer into the form of the row."""
        outcome = replace(outcome, status=_status(outcome.status))
        if isinstance(outcome, Confirmed):
            return replace(outcome, replayed=bool(outcome.replayed), provider_ref=str(outcome.provider_ref))
        reason = redactor().text(str(outcome.reason))
        return replace(outcome, reason=reason)

    def _after(self, outcome: Outcome, recorded: Recorded) -> Confirmed:
        if recorded.receipt is not None:
            replayed = outcome.replayed if isinstance(outcome, Confirmed) else True
            return replace(recorded.receipt, replayed=replayed)
        if isinstance(outcome, Rejected) and recorded.state is EffectState.REJECTED:
            _raise_rejected(outcome)
        wish = outcome.retry_after if isinstance(outcome, Rejected | Unknown) else None
        reason = outcome.reason if isinstance(outcome, Rejected | Unknown) else "The answer was not recorded."
        return self._settled(self._intend(sending=False), reason, wish=wish)

    def _reconcile(self, intended: Intended) -> Confirmed | None:
        faults.reached("reconcile.before", using=self.attempt.using)
        found = self._ask(intended)
        faults.reached("reconcile.after_answer", using=self.attempt.using)
        after = patiently(
            lambda: answered(self.attempt, intended, self.intent, found, policy=self.policy),
            using=self.attempt.using,
            limit=EVIDENCE_PATIENCE,
        )
        faults.reached("reconcile.after_commit", using=self.attempt.using)
        if after.meaning is Meaning.REJECTED:
            raise EffectRejected(after.why)
        if after.meaning is Meaning.WAIT:
            raise EffectUncertain(after.why, retry_at=after.until)
        return None

    def _ask(self, intended: Intended) -> Reconciliation:
        """Ask the provider what happened; whatever goes wrong with the question means: not found out."""
        assert self.operation.ask is not None  # noqa: S101  decide() asks only operations that can
        call = self._call(intended)
        began = clock.boot_seconds()
        try:
            call.check_deadline()
            found = self.operation.ask(call, **self.question)
        except DeadlinePassedError as error:
            return Reconciliation(Verdict.UNAVAILABLE, evidence={"error": _described(error)})
        except BaseException as error:  # noqa: BLE001  a question that failed teaches nothing
            found = Reconciliation(Verdict.UNAVAILABLE, evidence={"error": _described(error)})
        if isinstance(found, Verdict):
            found = Reconciliation(found)
        if not isinstance(found, Reconciliation):
            found = Reconciliation(Verdict.UNAVAILABLE, evidence={"error": f"returned {type(found).__name__}"})
        self._tell_call(began, "not_answered" if found.verdict is Verdict.UNAVAILABLE else "asked")
        return replace(found, evidence=_evidence(found.evidence))

    def _settled(self, intended: Intended, reason: str, *, wish: timedelta | None = None) -> Confirmed:
        """Return or raise what a decision means that sends nothing now."""
        decision = intended.decision
        match decision.action:
            case Action.SKIP | Action.ADOPT if intended.receipt is not None:
                return intended.receipt
            case Action.ABANDON:
                return Confirmed("", abandoned=True)
            case Action.REVIEW:
                msg = f"Whether the effect {self.intent.name!r} was applied is not known: {reason} {decision.why}"
                raise EffectNeedsReviewError(msg)
            case Action.CHANGED:
                msg = f"The effect {self.intent.name!r} ({self.intent.business_key}): {decision.why}"
                raise EffectChangedError(msg)
            case Action.REUSED:
                self._raise_reused(intended)
        raise EffectUncertain(reason, retry_at=self._retry_at(decision, intended, wish))

    def _raise_reused(self, intended: Intended) -> NoReturn:
        msg = (
            f"Job {self.attempt.job_id} asks for the effect {self.intent.name!r} under the business key "
            f"{self.intent.business_key!r}, which job {intended.owner_id} holds: {intended.decision.why} "
            "Look at both jobs."
        )
        raise EffectKeyReusedError(msg)

    def _retry_at(self, decision: Decision, intended: Intended, wish: timedelta | None) -> datetime:
        now = intended.facts.now
        waited = now - (self.attempt.claimed.waiting_since or now)
        asked = wish_within(self.attempt.definition.retry, _positive(wish) or ZERO, waited=waited)
        due = now + max(backoff(self.policy, intended.questions), asked)
        return max(due, decision.until) if decision.until is not None else due


def _raise_rejected(outcome: Rejected) -> NoReturn:
    if outcome.permanent:
        raise EffectRejected(outcome.reason, status=outcome.status, provider_request_id=outcome.provider_request_id)
    wish = _positive(outcome.retry_after)
    if wish is not None:
        raise RateLimited(wish, outcome.reason)
    raise TransientError(outcome.reason)


def _evidence(details: object) -> dict[str, Any]:
    """Redact what a provider told; details that are no mapping must not cost the verdict that they came with."""
    if not isinstance(details, Mapping):
        return {"not_stored": f"{type(details).__name__} instead of a mapping"}
    masked: dict[str, Any] = redactor().value(dict(details))
    return masked


def _status(status: object) -> int | None:
    """Return a status that the row can hold: an untidy one must not cost the answer that it came with."""
    return status if isinstance(status, int) and not isinstance(status, bool) and abs(status) < 2**31 else None


def _positive(wish: object) -> timedelta | None:
    return max(wish, ZERO) if isinstance(wish, timedelta) else None


def _described(error: BaseException) -> str:
    found = described(error)
    return f"{found.type}: {found.message}"
