"""Proof that each planned fault really happened, from the provider's log and from our own rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django_jobs.models import Attempt, Compensation, DuplicateEnqueue, Job, OperatorAction, SideEffect
from testproject.demo.faults import Killed, Woken
from testproject.demo.operator import Refunded, Replayed
from testproject.demo.ordering import Placed, Refusal, Repeat
from testproject.demo.partner import FAULTS, Told
from testproject.demo.plan import RETRY_AFTER, TITLES, Fault, Plan

Requests = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Whether a fault fired, and what proves it, or what is missing."""

    fault: Fault
    fired: bool
    proof: str

    @property
    def title(self) -> str:
        """The fault in words."""
        return TITLES[self.fault]


@dataclass(slots=True, kw_only=True)
class Seen:
    """What was noted while the faults were made to happen."""

    placed: dict[str, Placed] = field(default_factory=dict)
    killed: Killed | None = None
    woken: Woken | None = None
    repeat: Repeat | None = None
    refusal: Refusal | None = None
    replayed: Replayed | None = None
    refunded: Refunded | None = None


def gather(plan: Plan, seen: Seen, ledger: dict[str, Any], heard: Told) -> list[Evidence]:
    """Return the evidence of every fault in the order of the plan's list."""
    return [
        _evidence(fault, plan, seen, ledger, heard)
        if plan.meets(fault)
        else Evidence(fault=fault, fired=False, proof=f"it was left out (--without {fault})")
        for fault in Fault
    ]


def _evidence(fault: Fault, plan: Plan, seen: Seen, ledger: dict[str, Any], heard: Told) -> Evidence:
    match fault:
        case Fault.PARTNER:
            fired, proof = _partner(heard)
        case Fault.DEAD_LETTER:
            fired, proof = _dead_letter(seen.replayed)
        case Fault.REFUND:
            fired, proof = _refunded(seen.refunded, ledger["refunds"])
        case _:
            return _evidence_of_order(fault, seen.placed[plan.numbers[fault]], seen, ledger["requests"])
    return Evidence(fault=fault, fired=fired, proof=proof)


def _evidence_of_order(fault: Fault, placed: Placed, seen: Seen, requests: Requests) -> Evidence:
    mine = [request for request in requests if request["order_id"] == placed.order.pk]
    fired, proof = False, "no evidence is looked for"
    match fault:
        case Fault.KILL:
            fired, proof = _killed(seen.killed, mine)
        case Fault.LOST_RESPONSE:
            fired, proof = _lost_response(placed, mine)
        case Fault.RATE_LIMIT:
            fired, proof = _rate_limited(placed, mine)
        case Fault.DECLINE:
            fired, proof = _declined(placed, mine)
        case Fault.DUPLICATE:
            fired, proof = _duplicate(seen.repeat)
        case Fault.CONFLICT:
            fired, proof = _conflict(seen.refusal)
        case Fault.FREEZE:
            fired, proof = _frozen(seen.woken)
    return Evidence(fault=fault, fired=fired, proof=proof)


def _killed(killed: Killed | None, mine: Requests) -> tuple[bool, str]:
    if killed is None:
        return False, "no process was killed"
    lost = Attempt.objects.get(pk=killed.attempt_id)
    applied = [request for request in mine if request["n"] == killed.request and request["applied"]]
    fired = (
        bool(applied)
        and killed.unanswered
        and (lost.outcome, lost.loss_cause, lost.exit_status) == ("lost", "exit", -9)
    )
    return fired, (
        f"{killed.placed.order.number}: request {killed.request} was applied and its answer held; SIGKILL to process "
        f"{killed.pid} (child {killed.child} of {killed.worker}); attempt {lost.number} is {lost.outcome or 'open'}, "
        f"cause {lost.loss_cause or 'none'}, exit status {lost.exit_status}; {_ending(killed.placed)}"
    )


def _lost_response(placed: Placed, mine: Requests) -> tuple[bool, str]:
    dropped = _with_fault(mine, "drop_response")
    if not dropped:
        return False, f"{placed.order.number}: the provider dropped no response"
    fired = bool(dropped[0]["applied"]) and dropped[0]["status"] is None
    return fired, (
        f"{placed.order.number}: request {dropped[0]['n']} was applied and its connection closed without an answer; "
        f"{_ending(placed)}"
    )


def _rate_limited(placed: Placed, mine: Requests) -> tuple[bool, str]:
    limited = _with_fault(mine, "rate_limited")
    later = [request for request in mine if limited and request["n"] > limited[0]["n"] and request["method"] == "POST"]
    if not limited or not later:
        return False, f"{placed.order.number}: {'never asked again' if limited else 'the provider answered no 429'}"
    waited = (_time(later[0]) - _time(limited[0])).total_seconds()
    same = "the same" if later[0]["key"] == limited[0]["key"] else "another"
    return limited[0]["status"] == 429 and waited >= RETRY_AFTER, (
        f"{placed.order.number}: request {limited[0]['n']} got {limited[0]['status']} with Retry-After "
        f"{RETRY_AFTER:g} s; request {later[0]['n']} came {waited:.1f} s later under {same} key; {_ending(placed)}"
    )


def _declined(placed: Placed, mine: Requests) -> tuple[bool, str]:
    declined = _with_fault(mine, "declined")
    placed.order.refresh_from_db()
    fired = bool(declined) and declined[0]["status"] == 402 and placed.order.status == "declined"
    number = declined[0]["n"] if declined else "none"
    return fired, (
        f"{placed.order.number}: card {placed.order.card}; request {number} got 402; the order is "
        f"{placed.order.status} ({placed.order.decline_reason or 'no reason'}); {_ending(placed)}"
    )


def _duplicate(repeat: Repeat | None) -> tuple[bool, str]:
    if repeat is None:
        return False, "no payload was sent twice"
    kept = DuplicateEnqueue.objects.filter(job_id=repeat.first, outcome="duplicate").count()
    fired = repeat.outcome == "duplicate" and repeat.first == repeat.second and kept == 1
    same = "the same job" if repeat.first == repeat.second else "another job than"
    return fired, f"{repeat.number}: the second answer was '{repeat.outcome}', {same} {repeat.first}; {kept} on record"


def _conflict(refusal: Refusal | None) -> tuple[bool, str]:
    if refusal is None:
        return False, "no key was used with another payload"
    fired = not refusal.stored and refusal.holder == refusal.first
    answer = "was stored" if refusal.stored else "was refused with IdempotencyConflictError"
    return (
        fired,
        f"key {refusal.key} with the payload of order {refusal.other_order} {answer}, naming job {refusal.holder}",
    )


def _frozen(woken: Woken | None) -> tuple[bool, str]:
    if woken is None:
        return False, "no worker was frozen"
    frozen = woken.frozen
    late = Attempt.objects.get(pk=frozen.attempt_id)
    past = (woken.woken_at - frozen.lease_ends_at).total_seconds()
    taken = woken.taken_over_by != frozen.worker.name
    fired = past > 0 and taken and late.outcome == "lost" and late.refused_count > 0
    stood_still = (woken.woken_at - frozen.frozen_at).total_seconds()
    return fired, (
        f"{frozen.placed.order.number}: request {frozen.request} was applied; SIGSTOP to {frozen.processes} processes "
        f"of {frozen.worker.name} for {stood_still:.1f} s, {past:.1f} s past the lease; attempt {late.number} is "
        f"{late.outcome} ({late.loss_cause}), its late {late.refused_operation or 'write'} was refused "
        f"{late.refused_count}×; {_ending(frozen.placed)}"
    )


def _partner(heard: Told) -> tuple[bool, str]:
    faulty = heard.faulty()
    # A refused event is taken later; one that was taken before the sender could know comes again.
    ends = {"fail": "taken", "late": "again", "hang-up": "again"}
    fired = set(faulty) == set(FAULTS) and all(ends[fault] in what[1:] for fault, what in faulty.items())
    told = "; ".join(f"{what[0]}, then {', '.join(what[1:]) or 'nothing'}" for what in faulty.values())
    return fired, f"{told or 'nothing went wrong'}; {len(heard.taken)} events were taken, {heard.repeated} came again"


def _dead_letter(replayed: Replayed | None) -> tuple[bool, str]:
    if replayed is None:
        return False, "no dead letter was replayed"
    job = Job.objects.get(pk=replayed.job)
    action = OperatorAction.objects.filter(job_id=job.pk, action="replay").first()
    fired = job.state == "succeeded" and job.generation == 2 and action is not None
    who = f"{action.actor} for {action.owner}: {action.reason}" if action else "nobody"
    return fired, (
        f"job {job.pk} was dead-lettered ({replayed.reason}); replayed by {who} The page answered {replayed.status}; "
        f"generation {job.generation} {job.state}"
    )


def _refunded(refunded: Refunded | None, refunds: list[dict[str, Any]]) -> tuple[bool, str]:
    if refunded is None:
        return False, "nothing was taken back"
    row = Compensation.objects.get(effect_id=refunded.effect)
    mine = [item for item in refunds if item["order_id"] == refunded.order]
    original = Job.objects.get(pk=refunded.job)
    fired = row.outcome == "succeeded" and len(mine) == 1 and original.state == "succeeded"
    return fired, (
        f"compensation {row.outcome} by job {row.job_id}; the provider holds {len(mine)} refund(s) of the order; the "
        f"original job stays {original.state}"
    )


def _ending(placed: Placed) -> str:
    last = Attempt.objects.filter(job_id=placed.job.id).order_by("-number").first()
    effect = SideEffect.objects.filter(job_id=placed.job.id).first()
    if last is None:
        return "there is no attempt"
    asked = " asked the provider first and" if effect and effect.resolved_by == "reconciliation" else ""
    return f"attempt {last.number} on {last.worker_name}{asked} {last.outcome or 'is open'}"


def _with_fault(requests: Iterable[dict[str, Any]], fault: str) -> Requests:
    return [request for request in requests if request["fault"] == fault]


def _time(request: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(request["arrived_at"])
