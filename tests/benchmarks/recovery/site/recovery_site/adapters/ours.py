"""django_jobs: a plain handler, and one whose effect is recorded and carries a key to the provider."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any

from django_jobs import Confirmed, JobContext, effect, job
from recovery_site import work


@job(type="recovery.plain")
def plain(key: str) -> None:
    """The handler of every other system, word for word."""
    work.perform(key, work.orm_row)


@effect("recovery.pay", dedupe="key", key_lifetime=timedelta(days=1), timeout=timedelta(seconds=5))
def pay(call: Any, *, payment: str) -> Confirmed:
    """One request to a provider that honours keys."""
    work.request(payment, call.key)
    return Confirmed(f"paid {payment}")


@job(type="recovery.recorded", takes_context=True)
def recorded(context: JobContext, key: str) -> None:
    """The same steps, with the effect recorded and the row committed together with the success."""
    with work.execution(key):
        time.sleep(work.SLOW if key.startswith("slow") else work.BEFORE)
        context.effect("pay", pay, payment=key)
        time.sleep(work.AFTER)
        with context.complete():
            work.orm_row(key)


def enqueue(keys: list[str]) -> None:
    """Enqueue one job per key."""
    handler = recorded if os.environ["RECOVERY_VARIANT"] == "effect record" else plain
    handler.enqueue_many([{"key": key} for key in keys])
