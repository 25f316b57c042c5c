"""The rows: columns, constraints, indexes and reading querysets.

This room is written by ``store`` alone; everything else only reads it.
"""

from django_jobs.models.attempt import Attempt
from django_jobs.models.control import Pause, QueueControl
from django_jobs.models.effect import EffectAdoption, EffectStake, Reconciliation, Send, SideEffect
from django_jobs.models.identity import DuplicateEnqueue, IdempotencyKey, Installation
from django_jobs.models.job import Job, JobPayload, JobStep
from django_jobs.models.retention import PrunedStretch
from django_jobs.models.worker import Worker

__all__ = [
    "Attempt",
    "DuplicateEnqueue",
    "EffectAdoption",
    "EffectStake",
    "IdempotencyKey",
    "Installation",
    "Job",
    "JobPayload",
    "JobStep",
    "Pause",
    "PrunedStretch",
    "QueueControl",
    "Reconciliation",
    "Send",
    "SideEffect",
    "Worker",
]
