"""Publishing: an event is stored in the transaction in which it happens, or refused."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import connections, router, transaction

from django_jobs import telemetry
from django_jobs.conf import get_settings
from django_jobs.define.events import declared_event_type
from django_jobs.domain.event_fields import check_fields
from django_jobs.domain.identity import canonical, check_name, fingerprint
from django_jobs.domain.ids import uuid7
from django_jobs.enqueue.inside import InsideJob, check_place, current, in_transaction
from django_jobs.exceptions import EventError, OutsideTransactionError, PayloadError
from django_jobs.models import OutboxEvent
from django_jobs.outbox.wake import wake_dispatchers
from django_jobs.store.brief import briefly
from django_jobs.store.outbox import NewEvent, emit, promote_own

LARGEST_REFERRED = 16 * 1024 * 1024  # data with a dataref is encoded once, to check it and to know its digest


def publish(
    type: str,  # noqa: A002  CloudEvents' word
    data: Mapping[str, Any] | None = None,
    *,
    version: int = 1,
    ordering_key: str = "",
    subject: str = "",
    dataref: str = "",
    detached: bool = False,
    using: str | None = None,
) -> uuid.UUID:
    """Record that something happened, in the transaction in which it happens; returns the event's id.

    Inside a handler: in ``complete()``, ``step()`` or an atomic handler; it is stored when that block ends, in the
    order of ordering keys. Elsewhere an ``atomic()`` block must be open; it is stored at once, so publish last: an
    ordering key is held until the transaction ends, and two transactions that take several keys in different order
    deadlock.

    Args:
        type: A declared event type.
        data: Its fields.
        version: Of the event type.
        ordering_key: Events of one key arrive in the order of their commits at each destination, one at a time.
        subject: What it is about, for example ``order:42``.
        dataref: Where consumers find the data, if it is too large to be stored; None as data is possible then.
        detached: Accept that the event commits by itself, whatever becomes of what belongs to it.
        using: The database; default: where the router writes.

    Raises:
        EventError: The type, its version or a field is not declared, a value does not fit, or the data is too large.
        OutsideCompletionError: Inside a handler, outside of its completion.
        OutsideTransactionError: Outside of handlers, and no transaction is open.
        CrossDatabaseError: A transaction is open on another database.
    """
    alias = router.db_for_write(OutboxEvent) if using is None or using == "" else using
    if not isinstance(alias, str) or alias not in connections:
        msg = f"There is no database {alias!r}; the settings have {', '.join(sorted(connections))}."
        raise EventError(msg)
    inside = current.get()
    owned = inside is not None and inside.commits_with_success
    new = _prepared(
        type,
        data,
        version=version,
        ordering_key=ordering_key,
        subject=subject,
        dataref=dataref,
        **_origin(inside, owned=owned),
    )
    check_place(what="publish()", using=alias, detached=detached)
    if inside is None and not detached and not in_transaction(connections[alias]):
        msg = (
            "publish() outside of a transaction: the event would not commit together with what happened. Call it "
            "inside transaction.atomic(), or pass detached=True to accept that."
        )
        raise OutsideTransactionError(msg)
    if inside is not None and owned and inside.held_back is not None:
        inside.held_back.append(_HeldBack(new=new, using=alias))
    else:
        _store(new, using=alias)
    return new.event_id


def _origin(inside: InsideJob | None, *, owned: bool) -> dict[str, Any]:
    """Return which job an event belongs to, and what it continues."""
    if inside is None:
        return {}
    origin: dict[str, Any] = {
        "correlation_id": inside.correlation_id or str(inside.job_id),
        "causation_id": str(inside.job_id),
        "traceparent": inside.traceparent,
    }
    if owned and inside.attempt_id is not None:
        origin |= {"job_id": inside.job_id, "attempt_id": inside.attempt_id, "fence": inside.number}
    return origin


def _prepared(
    name: str,
    data: Mapping[str, Any] | None,
    *,
    version: int,
    ordering_key: str,
    subject: str,
    dataref: str,
    **origin: Any,
) -> NewEvent:
    declared = declared_event_type(name, version)
    try:
        for what, value, limit in (
            ("ordering_key", ordering_key, 255),
            ("subject", subject, 200),
            ("dataref", dataref, 500),
        ):
            if value != "":
                check_name(value, what=what, limit=limit)
    except PayloadError as error:
        msg = f"The event {declared}: {error}"
        raise EventError(msg) from None
    text, digest = _encoded(str(declared), data, declared.fields, dataref)
    values: dict[str, Any] = {
        "job_id": None,
        "attempt_id": None,
        "fence": None,
        "correlation_id": "",
        "causation_id": "",
        "traceparent": "",
        **origin,
    }
    return NewEvent(
        event_id=uuid7(),
        type=declared.name,
        version=declared.version,
        source=source(),
        subject=subject,
        tenant="",
        data=text,
        data_digest=digest,
        dataref=dataref,
        ordering_key=ordering_key,
        **values,
    )


def _encoded(name: str, data: Mapping[str, Any] | None, fields: Mapping[str, Any], dataref: str) -> tuple[str, str]:
    """Return the text that is stored (empty: it stands elsewhere) and the digest of the data."""
    if data is None and dataref:
        return "", ""
    if not isinstance(data, Mapping):
        msg = f"The data of the event {name} must be a dict of its fields, not {data.__class__.__name__}."
        raise EventError(msg)
    check_fields(data, fields, name=name)
    rules = get_settings()
    most = rules.event_max_bytes
    try:
        text = canonical(dict(data), max_bytes=LARGEST_REFERRED if dataref else most, max_depth=rules.payload_max_depth)
    except PayloadError as error:
        hint = "" if dataref else f" An event may have {most} bytes; give dataref= for more."
        msg = f"The event {name} cannot be stored: {error}{hint}"
        raise EventError(msg) from None
    digest = fingerprint(text)
    return ("" if dataref and len(text.encode()) > most else text), digest


def source() -> str:
    """Return the source of this site's events."""
    given = get_settings().source
    if given:
        return given
    project = str(getattr(settings, "ROOT_URLCONF", "")).partition(".")[0]
    return f"urn:django:{project or 'site'}"


@dataclass(eq=False, slots=True, kw_only=True)
class _HeldBack:
    """An event that is stored when the block ends, unless a savepoint that it was published in was rolled back."""

    new: NewEvent
    using: str
    waits: bool = field(default=False, init=False)
    committed: Any = field(init=False)

    def __post_init__(self) -> None:
        # Django forgets what was to be run on commit together with the savepoint: whoever is forgotten did not happen.
        self.committed = lambda: _after_commit(self.new, self.using, waits=self.waits)
        transaction.on_commit(self.committed, using=self.using, robust=True)

    @property
    def happened(self) -> bool:
        return any(entry[1] is self.committed for entry in connections[self.using].run_on_commit)


def store_held_back(inside: InsideJob) -> None:
    """Store what a completion, a step or an atomic handler published, in the order of ordering keys."""
    held: list[_HeldBack] = inside.held_back or []
    inside.held_back = None
    for item in sorted(held, key=lambda item: item.new.ordering_key):
        if item.happened:
            item.waits = emit(item.new, using=item.using).waiting > 0


def _store(new: NewEvent, *, using: str) -> None:
    with briefly(using):
        waits = emit(new, using=using).waiting > 0
        if not connections[using].in_atomic_block:
            return  # autocommit is off: nobody tells of the commit, and dispatchers find the event at their next look
        transaction.on_commit(lambda: _after_commit(new, using, waits=waits), using=using, robust=True)


def _after_commit(new: NewEvent, using: str, *, waits: bool) -> None:
    telemetry.emit("event.committed", event_id=new.event_id, event_type=new.type)
    if waits:
        promote_own(new.event_id, using=using)
    wake_dispatchers()
