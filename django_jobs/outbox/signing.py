"""Signatures of webhooks, as the Standard Webhooks specification has them: HMAC-SHA256 over ``id.timestamp.body``.

A secret is text that begins with ``whsec_`` (the rest is base64), or the bytes of the key themselves. Several secrets
are given while one is being replaced: what goes out is signed with each, what comes in may be signed with any.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from django_jobs import clock
from django_jobs.exceptions import (
    DefinitionError,
    WebhookHeaderError,
    WebhookInFutureError,
    WebhookSignatureError,
    WebhookTooOldError,
)

PREFIX = "whsec_"
SCHEME = "v1,"
ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
TOLERANCE = timedelta(minutes=5)
SHORTEST_KEY = 16  # bytes; an empty or guessable key would let anybody sign
NEW_KEY = 32
SIGNATURES_MAX = 32  # more of them in one header is no rotation of secrets

_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)

Secret = str | bytes
Secrets = Secret | Iterable[Secret]


def new_secret() -> str:
    """Return a new random secret, to be given to both sides."""
    return PREFIX + base64.b64encode(os.urandom(NEW_KEY)).decode("ascii")


def keys_of(secrets: Secrets) -> tuple[bytes, ...]:
    """Return the keys behind one secret or several.

    Raises:
        DefinitionError: There is none, or one cannot be read or is too short; the message never shows it.
    """
    listed = (secrets,) if isinstance(secrets, str | bytes) else tuple(secrets)
    if not listed:
        msg = "There is no webhook secret; give at least one."
        raise DefinitionError(msg)
    return tuple(_key(secret, place) for place, secret in enumerate(listed, start=1))


def _key(secret: object, place: int) -> bytes:
    if isinstance(secret, str):
        if not secret.startswith(PREFIX):
            msg = (
                f"Webhook secret {place} does not begin with {PREFIX!r}; give the bytes of the key if it has no prefix."
            )
            raise DefinitionError(msg)
        try:
            secret = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
        except (binascii.Error, ValueError):
            msg = f"Webhook secret {place} is not base64 after {PREFIX!r}; copy it again, whole."
            raise DefinitionError(msg) from None
    if not isinstance(secret, bytes):
        msg = f"Webhook secret {place} is of type {type(secret).__name__}; give text that begins with {PREFIX!r}."
        raise DefinitionError(msg)
    if len(secret) < SHORTEST_KEY:
        msg = f"Webhook secret {place} has {len(secret)} bytes, fewer than {SHORTEST_KEY}: it could be guessed."
        raise DefinitionError(msg)
    return secret


def sign(keys: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """Return the signatures of a message, one per key, as they stand in the header."""
    return " ".join(SCHEME + base64.b64encode(_digest(key, message_id, str(timestamp), body)).decode() for key in keys)


def _digest(key: bytes, message_id: str, timestamp: str, body: bytes) -> bytes:
    return hmac.new(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()


def verify_webhook(
    headers: Mapping[str, str],
    body: bytes,
    *,
    secrets: Secrets,
    tolerance: timedelta = TOLERANCE,
    now: datetime | None = None,
) -> str:
    """Check that a webhook was signed with one of the secrets, not long ago; return its id for ``receive()``.

    The comparison takes the same time whatever is wrong. It proves who sent the message, not that it comes for the
    first time: that is what the id and ``receive()`` are for.

    Args:
        headers: Of the request, for example ``request.headers``; upper and lower case are the same.
        body: The bytes as they arrived (``request.body``), never what was parsed and written anew.
        secrets: One secret or several: text that begins with ``whsec_``, or the bytes of a key.
        tolerance: How far the time in the header may be from now, in both directions.
        now: The present; for tests.

    Raises:
        WebhookHeaderError: A header is missing or cannot be read.
        WebhookTooOldError: It was signed too long ago.
        WebhookInFutureError: It was signed too far ahead.
        WebhookSignatureError: No signature matches.
        DefinitionError: The secrets or the body cannot be used.
    """
    keys = keys_of(secrets)
    if not isinstance(body, bytes | bytearray | memoryview):
        msg = f"The body of a webhook is bytes as they arrived (request.body), not {type(body).__name__}."
        raise DefinitionError(msg)
    message_id, timestamp, signature = _needed(headers)
    _check_signature(keys, message_id, timestamp, bytes(body), signature)
    _check_time(timestamp, tolerance, now or clock.now())
    return message_id


def _needed(headers: Mapping[str, str]) -> tuple[str, str, str]:
    found = {str(name).lower(): value for name, value in headers.items()}
    values = []
    for name in (ID, TIMESTAMP, SIGNATURE):
        value = found.get(name)
        if not isinstance(value, str) or not value.strip():
            msg = f"The header {name} is missing."
            raise WebhookHeaderError(msg)
        values.append(value.strip())
    message_id, timestamp, signature = values
    if not (message_id.isascii() and message_id.isprintable()) or "." in message_id:
        # The point parts what is signed: with one in the id, a part of the body could pass for the time.
        msg = f"The header {ID} has a point, or signs outside printable ASCII."
        raise WebhookHeaderError(msg)
    if not _SECONDS.fullmatch(timestamp):
        msg = f"The header {TIMESTAMP} is not a number of seconds."
        raise WebhookHeaderError(msg)
    return message_id, timestamp, signature


def _check_signature(keys: Sequence[bytes], message_id: str, timestamp: str, body: bytes, header: str) -> None:
    expected = [_digest(key, message_id, timestamp, body) for key in keys]
    given = header.split()
    if len(given) > SIGNATURES_MAX:
        msg = f"The header {SIGNATURE} has more than {SIGNATURES_MAX} signatures."
        raise WebhookHeaderError(msg)
    matches = False
    for text in given:
        candidate = _decoded(text)
        for digest in expected:
            matches |= hmac.compare_digest(digest, candidate)  # all of them: how long it takes tells nothing
    if not matches:
        msg = "No signature of the webhook was made with the secret; check the secret, and that the body is unchanged."
        raise WebhookSignatureError(msg)


def _decoded(text: str) -> bytes:
    """Return the bytes of a signature of our scheme; anything else (another version, no base64) equals nothing."""
    try:
        return base64.b64decode(text.removeprefix(SCHEME), validate=True) if text.startswith(SCHEME) else b""
    except (binascii.Error, ValueError):
        return b""


def _check_time(timestamp: str, tolerance: timedelta, now: datetime) -> None:
    ahead = int(timestamp) - now.timestamp()
    if ahead < -tolerance.total_seconds():
        msg = f"The webhook was signed {-ahead:.0f} s ago, longer than {tolerance.total_seconds():.0f} s."
        raise WebhookTooOldError(msg)
    if ahead > tolerance.total_seconds():
        msg = f"The webhook was signed {ahead:.0f} s ahead of this clock, more than {tolerance.total_seconds():.0f} s."
        raise WebhookInFutureError(msg)
