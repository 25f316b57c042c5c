"""What an enqueue did."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Literal

from django_jobs.enqueue.result import Followed

OutcomeName = Literal["created", "duplicate", "created_after_expiry", "conflict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueResult(Followed):
    """The job that now stands for these arguments.

    ``outcome`` is ``created``, ``duplicate`` (a live key answered with its job; nothing was stored),
    ``created_after_expiry`` (the key had expired; a new job holds it) or, from ``enqueue_many`` only, ``conflict``.
    ``state`` is the job's state as it was read (when the job was pruned and only its key is left: its last one),
    ``resolution`` how a dead letter was settled. ``version_differs`` marks a duplicate whose arguments were recorded
    under another payload version and could not be compared. ``database`` is the alias on which it is stored.
    """

    id: uuid.UUID
    outcome: OutcomeName
    state: str
    resolution: str | None = None
    version_differs: bool = False
    database: str = "default"

    @property
    def created(self) -> bool:
        """Whether this call stored a new job."""
        return self.outcome in {"created", "created_after_expiry"}
