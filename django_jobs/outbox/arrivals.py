"""One message on its way into the inbox: taken, met again, or put aside for a human."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta

from django_jobs import telemetry
from django_jobs.conf import get_settings
from django_jobs.domain.durations import LONGEST
from django_jobs.domain.identity import check_name
from django_jobs.domain.messages import Content, SameAs, read_content
from django_jobs.exceptions import DefinitionError, EnqueueContendedError
from django_jobs.store.inbox import Address, Taken, put_aside, take, taken

LEAST_KEEP = timedelta(hours=1)
TRIES = 5
OTHER = "The id came before with other content."


def check_message(source: object, message_id: object, keep: object) -> None:
    """Refuse what cannot name a message, and a time that cannot be, before any SQL.

    Raises:
        KeyFormatError: Source or id is empty, too long or not printable ASCII.
        DefinitionError: ``keep`` cannot be.
    """
    check_name(source, what="source", limit=200)
    check_name(message_id, what="message id")
    if not isinstance(keep, timedelta) or not LEAST_KEEP <= keep <= LONGEST:
        msg = f"keep must be a timedelta from one hour to {LONGEST.days} days, not {keep!r}."
        raise DefinitionError(msg)


def content_of(data: object, same_as: SameAs | None) -> Content:
    """Read what came, within the limits of the settings.

    Raises:
        PayloadError: Values of the caller cannot be stored; bytes never raise it.
    """
    rules = get_settings()
    return read_content(data, same_as=same_as, max_bytes=rules.payload_max_bytes, max_depth=rules.payload_max_depth)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A message that came for a consumer, with what it says; ``owner`` is told when it is put aside."""

    address: Address
    content: Content
    keep: timedelta
    owner: str
    using: str

    def take(self, job_id: uuid.UUID | None) -> Taken | None:
        """Write that the message is taken, in the open transaction; else return what was written when it was.

        Raises:
            EnqueueContendedError: The earlier row was pruned again and again while it was looked at.
        """
        for _ in range(TRIES):
            if take(self.address, data_digest=self.content.digest, keep=self.keep, job_id=job_id, using=self.using):
                return None
            before = self.before()
            if before is not None:
                return before
        msg = f"Message {self.address.message_id!r} was pruned {TRIES} times while it was looked at; receive it again."
        raise EnqueueContendedError(msg)

    def before(self) -> Taken | None:
        """Return what is on record about the message, if it was taken."""
        return taken(self.address, using=self.using)

    def is_same(self, before: Taken) -> bool:
        """Say whether it says what it said when it was taken; without content on one of the two sides it does."""
        ours, theirs = self.content.digest, before.data_digest
        return not ours or not theirs or ours == theirs

    def put_aside(self, reason: str, *, job_id: uuid.UUID | None, first_digest: str) -> None:
        """Keep it for a human; the first time that this content comes its owner is told."""
        content = self.content
        is_new = put_aside(
            self.address,
            data=content.text,
            data_digest=content.digest,
            first_digest=first_digest,
            reason=reason,
            using=self.using,
        )
        if is_new:
            telemetry.emit("owner.alert", reason="quarantined", owner=self.owner, job_id=job_id, **self._fields())

    def tell(self, outcome: str, job_id: uuid.UUID | None) -> None:
        """Tell telemetry what became of it."""
        telemetry.emit(f"inbox.{outcome}", job_id=job_id, **self._fields())

    def _fields(self) -> dict[str, str]:
        address = self.address
        return {"consumer": address.consumer, "source": address.source, "message_id": address.message_id}
