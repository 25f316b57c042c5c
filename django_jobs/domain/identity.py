"""Identity: what makes two enqueues the same job and two calls the same effect.

Payload text and its fingerprint, idempotency keys and their life, and the keys that providers see.
"""

from __future__ import annotations

import hashlib
import json
import string
import uuid
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Literal

from django_jobs.domain.canonical import MAX_BYTES, MAX_DEPTH, canonical
from django_jobs.domain.restore import restore
from django_jobs.exceptions import DefinitionError, KeyFormatError, PayloadError

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "canonical",
    "check_key",
    "check_name",
    "fingerprint",
    "format_key",
    "is_live",
    "key_fields",
    "provider_key",
    "request_digest",
    "restore",
    "scope_text",
]

KEY_LIMIT = 255
SERIAL_LONGEST = 450
_SHORTEST_PROVIDER_KEY = 24  # "dj1_" and 80 bits: enough that two operations never meet by chance
_UUID_LENGTH = 36
_ALWAYS_ENCODED = frozenset(":% ")


def fingerprint(text: str) -> str:
    """Return ``v1:`` and the SHA-256 of a canonical text: equal texts, equal fingerprints, in every release."""
    return f"v1:{hashlib.sha256(text.encode()).hexdigest()}"


def request_digest(text: str) -> str:
    """Return the digest of an effect's request text, as it is compared before a send is repeated."""
    return fingerprint(text)


def check_name(value: object, *, what: str, limit: int = KEY_LIMIT) -> str:
    """Return a stored name, or raise :class:`~django_jobs.exceptions.KeyFormatError` that calls it ``what``."""
    if not isinstance(value, str):
        raise KeyFormatError(f"The {what} is of type {type(value).__name__}; give text.")
    text = str.__str__(value)
    if not text:
        raise KeyFormatError(f"The {what} is empty; give at least one sign.")
    if len(text) > limit:
        raise KeyFormatError(f"The {what} has {len(text)} signs, more than {limit}; shorten it.")
    if not all(" " <= sign <= "~" for sign in text):
        raise KeyFormatError(f"The {what} has signs outside printable ASCII; encode or replace them.")
    if text != text.strip():
        raise KeyFormatError(f"The {what} starts or ends with a space; strip it.")
    return text


def check_key(key: object) -> str:
    """Return an idempotency key, or raise :class:`~django_jobs.exceptions.KeyFormatError`.

    A key has 1–255 signs of printable ASCII and no space at its ends: it becomes an HTTP header and a database key.
    """
    return check_name(key, what="key", limit=KEY_LIMIT)


def _parts(template: str) -> list[tuple[str, str | None]]:
    """Split a template into (text, field after it); refuse what would make two argument lists give one key."""
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise DefinitionError(f"The key template {template!r} cannot be read: {error}.") from None
    parts: list[tuple[str, str | None]] = []
    text = ""
    for literal, field, spec, conversion in parsed:
        text += literal
        if field is None:  # the literal ended at a doubled brace
            continue
        if not field.isidentifier() or spec or conversion:
            raise DefinitionError(
                f"The key template {template!r} has {{{field}}} with more than a plain argument name; "
                "name arguments only, and compute anything else before the enqueue (key=...)."
            )
        if parts and not _separators(text):
            raise DefinitionError(
                f"The key template {template!r} has no separator before {{{field}}}; put ':' between fields."
            )
        parts.append((text, field))
        text = ""
    return [*parts, (text, None)]


def _separators(literal: str) -> frozenset[str]:
    """Return the signs of a literal that can part two values: no letters and digits, they occur in encoded values."""
    return frozenset(sign for sign in literal if not sign.isalnum() and sign != "%")


def key_fields(template: str, *, parameters: Collection[str] | None = None) -> tuple[str, ...]:
    """Return the argument names that a key template uses, in order.

    Raises :class:`~django_jobs.exceptions.DefinitionError` if the template has anything but plain names, two fields
    without a separator between them, or a name that is not among the handler's ``parameters``.
    """
    names = tuple(field for _, field in _parts(template) if field is not None)
    unknown = [name for name in names if parameters is not None and name not in parameters]
    if unknown:
        raise DefinitionError(
            f"The key template {template!r} names {unknown[0]!r}, which the handler does not take; "
            f"it takes {', '.join(sorted(parameters or ())) or 'nothing'}."
        )
    return names


def format_key(template: str, arguments: Mapping[str, object]) -> str:
    """Return the key of ``arguments`` under a template like ``order:{order_id}``.

    Values are written as in the payload and percent-encoded where they could be mistaken for the template, so that two
    lists of values never give one key. None and empty text are refused: they would make strangers duplicates.
    """
    parts = _parts(template)
    encoded = _ALWAYS_ENCODED.union(*(_separators(literal) for literal, _ in parts[1:-1]))
    text = ""
    for literal, field in parts:
        text += literal
        if field is not None:
            text += _percent(_key_value(template, field, arguments), encoded)
    return check_key(text)


def _key_value(template: str, field: str, arguments: Mapping[str, object]) -> str:
    if field not in arguments:
        raise DefinitionError(f"The key template {template!r} needs the argument {field!r}, which is not given.")
    value = json.loads(canonical({field: arguments[field]}))[field]
    if value is None or value == "":
        raise PayloadError(f"{field} is empty, but the key is made of it ({template}); give a value or another key.")
    return value if isinstance(value, str) else canonical(value)


def _percent(text: str, encoded: Collection[str]) -> str:
    return "".join(
        sign if " " <= sign <= "~" and sign not in encoded else "".join(f"%{byte:02X}" for byte in sign.encode())
        for sign in text
    )


def scope_text(tenant: str, key_scope: str) -> str:
    """Return the stored scope of a key: tenant and scope, joined so that no two pairs give one text."""
    return f"{_percent(tenant, frozenset('%/ '))}/{_percent(key_scope, frozenset('% '))}"


def serial_text(key: str, *, tenant: str = "") -> str:
    """Return a serial key as it is stored: apart from those of other tenants, and no longer than a column holds."""
    text = scope_text(tenant, key) if tenant else key
    if len(text) <= SERIAL_LONGEST:
        return text
    return f"{text[: SERIAL_LONGEST - 65]}#{hashlib.sha256(text.encode()).hexdigest()}"


def is_live(
    *,
    unfinished: bool,
    finished_at: datetime | None,
    ttl: timedelta | None,
    expires_at: datetime | None,
    now: datetime,
) -> bool:
    """Say whether a key still answers for its job.

    It does while the job is unfinished, then until ``finished_at`` + ``ttl`` (None: for ever). ``expires_at`` is what
    pruning wrote down when it removed the job, and then decides alone.
    """
    if unfinished:
        return True
    if expires_at is not None:
        return now < expires_at
    if finished_at is None or ttl is None:
        return True
    return now < finished_at + ttl


def provider_key(
    *,
    namespace: str,
    tenant: str,
    provider: str,
    business_key: str,
    effect_name: str,
    epoch: int,
    alphabet: Literal["ascii", "uuid"] = "ascii",
    max_length: int = KEY_LIMIT,
) -> str:
    """Return the idempotency key that a provider sees for one effect.

    It depends on what the effect means to the business and on the key epoch, never on attempt, generation, worker or
    code. Raises :class:`~django_jobs.exceptions.DefinitionError` when ``max_length`` leaves too little of it.
    """
    fields = (namespace, tenant, provider, business_key, effect_name, str(epoch))
    joined = b"".join(b"%d:%s" % (len(data), data) for data in (field.encode() for field in fields))
    digest = hashlib.sha256(joined).digest()
    shortest = _UUID_LENGTH if alphabet == "uuid" else _SHORTEST_PROVIDER_KEY
    if max_length < shortest:
        raise DefinitionError(f"A provider key of at most {max_length} signs is too short; allow {shortest} or more.")
    if alphabet == "uuid":
        return str(uuid.UUID(bytes=digest[:16], version=5))
    return f"dj1_{digest.hex()[:40]}"[:max_length]
