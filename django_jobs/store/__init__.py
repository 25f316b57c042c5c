"""The only writer of state.

This room holds one function per transition, each of which runs one guarded statement from ``sql/``; it is entered from
``enqueue``, ``effects``, ``worker`` and ``operate``. A fenced statement that changes no row raises.
"""

from django_jobs.store.cancels import cancel, cancel_running, cancels_asked, request_cancel
from django_jobs.store.claims import Claimed, ClaimRequest, KnownType, claim
from django_jobs.store.compensations import compensated
from django_jobs.store.decisions import discard, replay, run_now
from django_jobs.store.endings import Failure, dead_letter, fail, release, snooze, succeed
from django_jobs.store.leases import Held, note_refusal, refused, renew
from django_jobs.store.losses import Abandoned, Loss, Page, abandoned, count_held, held_by, rescue
from django_jobs.store.new_jobs import NewJob, enqueue, enqueue_many
from django_jobs.store.waiting import defer, expire, known_queues, next_due, oldest_suspect, promote

__all__ = [
    "Abandoned",
    "ClaimRequest",
    "Claimed",
    "Failure",
    "Held",
    "KnownType",
    "Loss",
    "NewJob",
    "Page",
    "abandoned",
    "cancel",
    "cancel_running",
    "cancels_asked",
    "claim",
    "compensated",
    "count_held",
    "dead_letter",
    "defer",
    "discard",
    "enqueue",
    "enqueue_many",
    "expire",
    "fail",
    "held_by",
    "known_queues",
    "next_due",
    "note_refusal",
    "oldest_suspect",
    "promote",
    "refused",
    "release",
    "renew",
    "replay",
    "request_cancel",
    "rescue",
    "run_now",
    "snooze",
    "succeed",
]
