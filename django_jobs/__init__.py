"""Idempotent background jobs for Django that recover cleanly.

This room holds the public names; it imports no model, so that it can be imported before the apps are loaded.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_jobs.define.decorators import job
    from django_jobs.define.events import event_type
    from django_jobs.define.schedules import schedule
    from django_jobs.define.subscribe import subscribe
    from django_jobs.domain.events import Event
    from django_jobs.domain.providers import Confirmed, Rejected, Unknown
    from django_jobs.domain.retry import RetryPolicy
    from django_jobs.domain.schedules import Cron, Every
    from django_jobs.effects.adapter import effect
    from django_jobs.enqueue.batch_results import BatchResult, batch_result
    from django_jobs.enqueue.batches import batch
    from django_jobs.enqueue.chains import ChainResult, chain, chain_result
    from django_jobs.enqueue.hooked import Enqueueing
    from django_jobs.enqueue.outcome import EnqueueResult
    from django_jobs.enqueue.result import JobResult, job_result
    from django_jobs.middleware import Attempting, Middleware
    from django_jobs.outbox import inbox
    from django_jobs.outbox.emit import publish
    from django_jobs.outbox.inbox import Received, receive
    from django_jobs.outbox.signing import verify_webhook
    from django_jobs.propagation import Propagator
    from django_jobs.worker.context import JobContext

_PLACES = {
    "Attempting": "django_jobs.middleware",
    "BatchResult": "django_jobs.enqueue.batch_results",
    "ChainResult": "django_jobs.enqueue.chains",
    "Confirmed": "django_jobs.domain.providers",
    "Cron": "django_jobs.domain.schedules",
    "EnqueueResult": "django_jobs.enqueue.outcome",
    "Enqueueing": "django_jobs.enqueue.hooked",
    "Event": "django_jobs.domain.events",
    "Every": "django_jobs.domain.schedules",
    "JobContext": "django_jobs.worker.context",
    "JobResult": "django_jobs.enqueue.result",
    "Middleware": "django_jobs.middleware",
    "Propagator": "django_jobs.propagation",
    "Received": "django_jobs.outbox.inbox",
    "Rejected": "django_jobs.domain.providers",
    "RetryPolicy": "django_jobs.domain.retry",
    "Unknown": "django_jobs.domain.providers",
    "batch": "django_jobs.enqueue.batches",
    "batch_result": "django_jobs.enqueue.batch_results",
    "chain": "django_jobs.enqueue.chains",
    "chain_result": "django_jobs.enqueue.chains",
    "effect": "django_jobs.effects.adapter",
    "event_type": "django_jobs.define.events",
    "inbox": "django_jobs.outbox.inbox",
    "job": "django_jobs.define.decorators",
    "job_result": "django_jobs.enqueue.result",
    "publish": "django_jobs.outbox.emit",
    "receive": "django_jobs.outbox.inbox",
    "schedule": "django_jobs.define.schedules",
    "subscribe": "django_jobs.define.subscribe",
    "verify_webhook": "django_jobs.outbox.signing",
}
_MODULES = {"inbox"}  # names that stand for a whole module

__all__ = [
    "Attempting",
    "BatchResult",
    "ChainResult",
    "Confirmed",
    "Cron",
    "EnqueueResult",
    "Enqueueing",
    "Event",
    "Every",
    "JobContext",
    "JobResult",
    "Middleware",
    "Propagator",
    "Received",
    "Rejected",
    "RetryPolicy",
    "Unknown",
    "batch",
    "batch_result",
    "chain",
    "chain_result",
    "effect",
    "event_type",
    "inbox",
    "job",
    "job_result",
    "publish",
    "receive",
    "schedule",
    "subscribe",
    "verify_webhook",
]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        module = importlib.import_module(_PLACES[name])
        return module if name in _MODULES else getattr(module, name)
    msg = f"module 'django_jobs' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
