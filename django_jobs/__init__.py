"""Idempotent background jobs for Django that recover cleanly.

This room holds the public names; it imports no model, so that it can be imported before the apps are loaded.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_jobs.define.decorators import job
    from django_jobs.domain.providers import Confirmed, Rejected, Unknown
    from django_jobs.domain.retry import RetryPolicy
    from django_jobs.effects.adapter import effect
    from django_jobs.enqueue.outcome import EnqueueResult
    from django_jobs.worker.context import JobContext

_PLACES = {
    "Confirmed": "django_jobs.domain.providers",
    "EnqueueResult": "django_jobs.enqueue.outcome",
    "JobContext": "django_jobs.worker.context",
    "Rejected": "django_jobs.domain.providers",
    "RetryPolicy": "django_jobs.domain.retry",
    "Unknown": "django_jobs.domain.providers",
    "effect": "django_jobs.effects.adapter",
    "job": "django_jobs.define.decorators",
}

__all__ = ["Confirmed", "EnqueueResult", "JobContext", "Rejected", "RetryPolicy", "Unknown", "effect", "job"]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    msg = f"module 'django_jobs' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
