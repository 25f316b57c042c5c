"""The rows: columns, constraints, indexes and reading querysets.

This room is written by ``store`` alone; everything else only reads it.
"""

from django_jobs.models.attempt import Attempt
from django_jobs.models.audit import CancelRequest, Compensation, OperatorAction, ReplayItem, ReplayRequest
from django_jobs.models.composition import Batch, Chain, ChainLink
from django_jobs.models.control import Pause, QueueControl, Resource, SerialTurn
from django_jobs.models.effect import EffectAdoption, EffectStake, Reconciliation, Send, SideEffect
from django_jobs.models.identity import DuplicateEnqueue, IdempotencyKey, Installation
from django_jobs.models.inbox import InboxMessage, Quarantine
from django_jobs.models.job import DeadLetter, Job, JobPayload, JobStep
from django_jobs.models.outbox import Delivery, DeliveryAttempt, Destination, OrderingKey, OutboxEvent, Subscription
from django_jobs.models.retention import PrunedOrder, PrunedStretch
from django_jobs.models.schedule import Schedule, ScheduleTick
from django_jobs.models.worker import Worker

__all__ = [
    "Attempt",
    "Batch",
    "CancelRequest",
    "Chain",
    "ChainLink",
    "Compensation",
    "DeadLetter",
    "Delivery",
    "DeliveryAttempt",
    "Destination",
    "DuplicateEnqueue",
    "EffectAdoption",
    "EffectStake",
    "IdempotencyKey",
    "InboxMessage",
    "Installation",
    "Job",
    "JobPayload",
    "JobStep",
    "OperatorAction",
    "OrderingKey",
    "OutboxEvent",
    "Pause",
    "PrunedOrder",
    "PrunedStretch",
    "Quarantine",
    "QueueControl",
    "Reconciliation",
    "ReplayItem",
    "ReplayRequest",
    "Resource",
    "Schedule",
    "ScheduleTick",
    "Send",
    "SerialTurn",
    "SideEffect",
    "Subscription",
    "Worker",
]
