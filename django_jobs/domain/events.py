"""An event as publishers and consumers see it, and what a destination's answer means for its delivery."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened. ``data_text`` is the canonical JSON that was stored and is never written anew.

    Args:
        id: The same at every destination and at every attempt: what a consumer dedupes by.
        type: For example ``shop.order.paid``.
        version: Of the type's fields.
        source: Which site published it.
        data_text: The fields as canonical JSON; empty where ``dataref`` says where they are.
        created_at: When it was published, by the database's clock.
        ordering_key: Events of one key are delivered in the order of ``key_seq``; empty: in any order.
    """

    id: uuid.UUID
    type: str
    version: int
    source: str
    data_text: str
    created_at: datetime
    subject: str = ""
    tenant: str = ""
    dataref: str = ""
    ordering_key: str = ""
    key_seq: int | None = None
    correlation_id: str = ""
    causation_id: str = ""
    traceparent: str = ""

    @property
    def data(self) -> Any:
        """The fields, as JSON values."""
        return json.loads(self.data_text) if self.data_text else None

    @property
    def cloud_type(self) -> str:
        """The type as CloudEvents has it: ``shop.order.paid.v1``."""
        return f"{self.type}.v{self.version}"

    @property
    def sequence(self) -> str:
        """The place in the order as text that sorts like the number; empty without an ordering key."""
        return "" if self.key_seq is None else f"{self.key_seq:020d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """One event on its way to one destination, for the ``number``-th time."""

    delivery_id: uuid.UUID
    destination: str
    number: int
    event: Event


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The destination has it. ``receipt`` is what it said about it."""

    receipt: str = ""
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Returned:
    """The destination is there and has nowhere to put this event: it speaks against the event, not the destination."""

    reason: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Nacked:
    """The destination refused this event (it is too large, say): it speaks against the event, not the destination."""

    reason: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Timeout:
    """No answer in time: it may have arrived. It speaks against the destination."""

    reason: str


@dataclass(frozen=True, slots=True)
class Error:
    """The destination was not reached, or is out of order: it speaks against the destination, not the event."""

    reason: str
    status: int | None = None
    retry_after: timedelta | None = None


Report = Confirmed | Returned | Nacked | Timeout | Error


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """What a publisher promises.

    Args:
        semantics: In words: what "confirmed" means at this kind of destination.
        duplicate_window: How long the destination itself recognises a repeated event id; None: it does not.
        keeps_order: Whether a batch arrives in the order in which it was given.
        docs: The page that says so.
    """

    semantics: str
    duplicate_window: timedelta | None
    keeps_order: bool
    docs: str
