"""Jobs that come to every fault point of a worker; loaded by workers through ``JOBS_IMPORTS``."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import Any

from django_jobs import Confirmed, JobContext, RetryPolicy, effect, job
from django_jobs.define import registry
from django_jobs.domain.compensation import COMPENSATION_TYPE
from django_jobs.domain.effects import Outcome, Unknown, Verdict
from django_jobs.domain.lease import LeaseTerms
from django_jobs.exceptions import JobCancelled
from tests.acceptance.handlers import insert_row, take, tell
from tests.acceptance.workers import Witness

FAST = RetryPolicy(base=timedelta(milliseconds=50), cap=timedelta(milliseconds=100))
# Two seconds where a worker is frozen past its lease; elsewhere long, so that a slow machine ends no lease.
TERMS: dict[str, Any] = (
    {"budget": timedelta(seconds=1), "cleanup": timedelta(seconds=1)} if os.environ.get("CRASH_SHORT_LEASE") else {}
)
# As long as a call may take at most, because a slow machine needs it; a short budget has less room.
CALL = timedelta(seconds=0.5 if TERMS else 1)


def applied(n: int, key: str = "") -> bool:
    """Say whether the provider has done it, by its own ledger."""
    found = Witness.at(os.environ["JOBS_WITNESS"]).lines("applied", n=n)
    return any(key in ("", line["key"]) for line in found)


def apply(call: Any, n: int) -> Confirmed:
    """What a provider with keys does: the same key is applied once."""
    tell("call", n, key=call.key)
    if not applied(n, call.key):
        tell("applied", n, key=call.key)
    return Confirmed(f"ref {n}")


@effect("crash.pay", dedupe="key", key_lifetime=timedelta(hours=1), timeout=CALL, settle=timedelta(0))
def pay(call: Any, *, n: int) -> Outcome:
    """Pay at once."""
    return apply(call, n)


@pay.reconcile
def find_payment(call: Any, *, n: int) -> Verdict:
    """Look into the provider's ledger."""
    tell("asked", n)
    return Verdict.SUCCEEDED if applied(n, call.key) else Verdict.NOT_FOUND


@pay.compensation
def pay_back(call: Any, confirmed: Confirmed, *, n: int) -> Outcome:
    """Pay back at once, once."""
    if not applied(-n, call.key):
        tell("applied", -n, key=call.key)
    return Confirmed(f"back {n}")


@effect("crash.lost", dedupe="none", timeout=CALL, settle=timedelta(0))
def pay_unheard(call: Any, *, n: int) -> Outcome:
    """Pay, and lose the answer: only a question can tell."""
    apply(call, n)
    return Unknown("the answer was lost")


@pay_unheard.reconcile
def find_unheard(call: Any, *, n: int) -> Verdict:
    """Look into the provider's ledger."""
    tell("asked", n)
    return Verdict.SUCCEEDED if applied(n) else Verdict.NOT_FOUND


@job(type="crash.row", retry=FAST, **TERMS)
def row(n: int) -> None:
    """A row in one transaction with the success."""
    tell("start", n)
    insert_row(n)


@job(type="crash.limited", retry=FAST, queue_name="narrow", **TERMS)
def limited(n: int) -> None:
    """The same in a queue with a limit, whose claims are transactions."""
    insert_row(n)


@job(type="crash.plain", retry=FAST, atomic=False, **TERMS)
def plain(n: int) -> None:
    """No row: the success is a statement of its own."""
    tell("start", n)


@job(type="crash.effect", retry=FAST, takes_context=True, **TERMS)
def paying(context: JobContext, n: int) -> None:
    """An effect, then a row together with the success."""
    context.effect("pay", pay, n=n)
    with context.complete():
        insert_row(n)


@job(type="crash.reconciled", retry=FAST, takes_context=True, **TERMS)
def reconciled(context: JobContext, n: int) -> None:
    """An effect whose answer is lost, so that the next attempt asks; then a row together with the success."""
    context.effect("pay", pay_unheard, n=n)
    with context.complete():
        insert_row(n)


@job(type="crash.progress", retry=FAST, takes_context=True, **TERMS)
def progressing(context: JobContext, n: int) -> None:
    """Progress, then a row together with the success."""
    context.progress(1)
    with context.complete():
        insert_row(n)


@job(type="crash.fails_first", retry=FAST, takes_context=True, **TERMS)
def fails_first(context: JobContext, n: int) -> None:
    """Raise in the first attempt; write a row in the next."""
    if context.attempt == 1:
        raise ValueError("the first attempt fails")
    with context.complete():
        insert_row(n)


@job(type="crash.dies_first", retry=FAST, takes_context=True, **TERMS)
def dies_first(context: JobContext, n: int) -> None:
    """End the process in the first attempt; write a row in the next."""
    if context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with context.complete():
        insert_row(n)


@job(type="crash.cancels", retry=FAST, atomic=False, **TERMS)
def cancels(n: int) -> None:
    """End the job as cancelled."""
    tell("start", n)
    raise JobCancelled("nobody wants it")


@job(type="crash.outstays", retry=FAST, takes_context=True, **TERMS)
def outstays(context: JobContext, n: int) -> None:
    """Run longer than the grace in the first attempt; write a row in the next."""
    tell("start", n)
    if context.attempt == 1:
        take(60)
    with context.complete():
        insert_row(n)


@job(type="crash.batched", retry=FAST, **TERMS)
def batched(n: int) -> None:
    """A row, as the only member of a batch."""
    insert_row(n)


@job(type="crash.chained", retry=FAST, **TERMS)
def chained(n: int) -> None:
    """A row, as the first link of a chain."""
    insert_row(n)


@job(type="crash.chained_plain", retry=FAST, atomic=False, **TERMS)
def chained_plain(n: int) -> None:
    """No row: the success commits with the next link alone."""
    tell("start", n)


@job(type="crash.following", retry=FAST, **TERMS)
def following(n: int) -> None:
    """A row, as what follows a batch or a link."""
    insert_row(-n)


def _quicken(job_type: str) -> None:
    """Give a job of the package itself the times of the others here."""
    definition = registry.get(job_type).definition
    object.__setattr__(definition, "retry", FAST)
    if TERMS:
        object.__setattr__(definition, "terms", LeaseTerms(**TERMS))


if "JOBS_WITNESS" in os.environ:  # in a worker of these tests, not in the process that reads its handlers
    _quicken(COMPENSATION_TYPE)


@job(type="crash.keyed", key="n:{n}")
def keyed(n: int) -> None:
    """What a producer may enqueue twice."""
