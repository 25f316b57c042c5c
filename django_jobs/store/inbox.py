"""Messages from outside: which consumer has taken which, and what was put aside."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta

from django_jobs.domain.ids import uuid7
from django_jobs.models import InboxMessage
from django_jobs.store.statements import run


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A message, as one consumer sees it: a consumer takes a message of a source once."""

    consumer: str
    source: str
    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """That a message was taken before: with which content, and the job that works on it, if one does."""

    data_digest: str
    job_id: uuid.UUID | None


def take(address: Address, *, data_digest: str, keep: timedelta, job_id: uuid.UUID | None, using: str) -> bool:
    """Write that the consumer takes the message, in the transaction that is open; false: it was taken before.

    Two that take one message at once wait for each other: the second one hears what became of the first.
    """
    params = {"row": uuid7(), "data_digest": data_digest, "keep": keep, "job_id": job_id, **_columns(address)}
    return bool(run("inbox/take", params, using=using))


def taken(address: Address, *, using: str) -> Taken | None:
    """Return what is on record about a message that was taken; None when it is not (any more)."""
    rows = InboxMessage.objects.using(using).filter(**_columns(address))
    found = rows.values_list("data_digest", "job_id").first()
    return Taken(data_digest=found[0], job_id=found[1]) if found else None


def hand_over(address: Address, job_id: uuid.UUID, *, using: str) -> None:
    """Write that another job than the one that was meant works on a message: the holder of its key."""
    InboxMessage.objects.using(using).filter(**_columns(address)).update(job_id=job_id)


def put_aside(address: Address, *, data: str, data_digest: str, first_digest: str, reason: str, using: str) -> bool:
    """Keep a message that was not taken, for a human; false: this content is put aside already."""
    params = {
        "row": uuid7(),
        "data": data,
        "data_digest": data_digest,
        "first_digest": first_digest,
        "reason": reason,
        **_columns(address),
    }
    return bool(run("inbox/put_aside", params, using=using))


def _columns(address: Address) -> dict[str, str]:
    return {"consumer": address.consumer, "source": address.source, "message_id": address.message_id}
