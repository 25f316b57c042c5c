"""Webhook signatures: interoperable, rotated, of now, and refused with a plain reason."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs import clock
from django_jobs.exceptions import (
    DefinitionError,
    WebhookError,
    WebhookHeaderError,
    WebhookInFutureError,
    WebhookSignatureError,
    WebhookTooOldError,
)
from django_jobs.outbox.signing import keys_of, new_secret, sign, verify_webhook

# The published test vector of the specification's libraries.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
TIMESTAMP = 1614265330
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
NOW = datetime.fromtimestamp(TIMESTAMP, tz=UTC)
OTHER = "whsec_" + base64.b64encode(b"another secret of twenty-four").decode()


def headers(signature: str = SIGNATURE, timestamp: object = TIMESTAMP, message_id: str = MESSAGE_ID) -> dict[str, str]:
    """Return the three headers of a webhook."""
    return {"Webhook-Id": message_id, "WEBHOOK-TIMESTAMP": str(timestamp), "webhook-signature": signature}


def signed(body: bytes = BODY, *, secret: str | bytes = SECRET, ahead: float = 0) -> dict[str, str]:
    """Return the headers of a webhook that was signed so many seconds after ``NOW``."""
    timestamp = TIMESTAMP + int(ahead)
    return headers(sign(keys_of(secret), MESSAGE_ID, timestamp, body), timestamp)


def test_signature_is_that_of_the_specification() -> None:
    """The published vector comes out, and is accepted; header names have no case."""
    assert sign(keys_of(SECRET), MESSAGE_ID, TIMESTAMP, BODY) == SIGNATURE
    assert verify_webhook(headers(), BODY, secrets=SECRET, now=NOW) == MESSAGE_ID


def test_rotation_signs_with_every_secret_and_accepts_any() -> None:
    """While a secret is being replaced, sender and receiver may each know the old one, the new one or both."""
    both = sign(keys_of([OTHER, SECRET]), MESSAGE_ID, TIMESTAMP, BODY)

    assert both.split()[1] == SIGNATURE
    for known in (SECRET, OTHER, [OTHER, SECRET], [keys_of(SECRET)[0]]):
        assert verify_webhook(headers(both), BODY, secrets=known, now=NOW) == MESSAGE_ID
    assert verify_webhook(headers(), BODY, secrets=[OTHER, SECRET], now=NOW) == MESSAGE_ID


def test_signatures_of_other_schemes_are_passed_over() -> None:
    """A signature of another version, or no base64, is no reason to refuse the one that matches, and no match either."""
    mixed = f"v1a,{SIGNATURE[3:]} v2,xyz v1,ä v1, {SIGNATURE}"

    assert verify_webhook(headers(mixed), BODY, secrets=SECRET, now=NOW) == MESSAGE_ID
    with pytest.raises(WebhookSignatureError):
        verify_webhook(headers(f"v1a,{SIGNATURE[3:]} {SIGNATURE[3:]} v1, v1,!!"), BODY, secrets=SECRET, now=NOW)


@pytest.mark.parametrize(
    ("changed", "body", "secret"),
    [
        ({}, BODY + b" ", SECRET),
        ({}, BODY, OTHER),
        ({"message_id": "msg_other"}, BODY, SECRET),
        ({"timestamp": TIMESTAMP + 1}, BODY, SECRET),
        ({"signature": "v1," + "A" * 43 + "="}, BODY, SECRET),
        ({"signature": SIGNATURE[:-3]}, BODY, SECRET),
    ],
)
def test_anything_changed_is_no_match(changed: dict[str, str], body: bytes, secret: str) -> None:
    """Body, id, time, secret and signature belong together."""
    with pytest.raises(WebhookSignatureError, match="No signature"):
        verify_webhook(headers(**changed), body, secrets=secret, now=NOW)


@pytest.mark.parametrize("name", ["Webhook-Id", "WEBHOOK-TIMESTAMP", "webhook-signature"])
@pytest.mark.parametrize("value", [None, "", "  "])
def test_missing_header_is_named(name: str, value: str | None) -> None:
    """The sender's developer reads which header is missing."""
    given_headers = {key: text for key, text in headers().items() if key != name}
    if value is not None:
        given_headers[name] = value

    with pytest.raises(WebhookHeaderError, match=f"The header {name.lower()} is missing"):
        verify_webhook(given_headers, BODY, secrets=SECRET, now=NOW)


@pytest.mark.parametrize("timestamp", ["now", "1.5", "-1", "1" * 13, "٣", "0x10", "1e3"])
def test_timestamp_that_is_no_number_is_refused(timestamp: str) -> None:
    """Only whole seconds are a time."""
    with pytest.raises(WebhookHeaderError, match="webhook-timestamp is not a number"):
        verify_webhook(headers(timestamp=timestamp), BODY, secrets=SECRET, now=NOW)


@pytest.mark.parametrize("message_id", ["msg.1", "msg\n1", "mäg", "a\x00b"])
def test_id_that_could_shift_what_is_signed_is_refused(message_id: str) -> None:
    """A point in the id would let a part of the body pass for the time."""
    with pytest.raises(WebhookHeaderError, match="webhook-id has a point"):
        verify_webhook(headers(message_id=message_id), BODY, secrets=SECRET, now=NOW)


def test_header_full_of_signatures_is_refused() -> None:
    """A sender cannot make the receiver compare for ever."""
    with pytest.raises(WebhookHeaderError, match="more than 32"):
        verify_webhook(headers(" ".join(["v1,AAAA"] * 33)), BODY, secrets=SECRET, now=NOW)


def test_old_and_future_webhooks_are_refused_beyond_the_tolerance() -> None:
    """To the second, in both directions, and by the clock of the process when none is given."""
    for ahead in (-300, 300):
        assert verify_webhook(signed(ahead=ahead), BODY, secrets=SECRET, now=NOW)
    with pytest.raises(WebhookTooOldError, match="301 s ago, longer than 300 s"):
        verify_webhook(signed(ahead=-301), BODY, secrets=SECRET, now=NOW)
    with pytest.raises(WebhookInFutureError, match="301 s ahead of this clock"):
        verify_webhook(signed(ahead=301), BODY, secrets=SECRET, now=NOW)
    with pytest.raises(WebhookTooOldError):
        verify_webhook(signed(ahead=-31), BODY, secrets=SECRET, now=NOW, tolerance=timedelta(seconds=30))
    with clock.override(lambda: NOW):
        assert verify_webhook(signed(), BODY, secrets=SECRET)
    with pytest.raises(WebhookTooOldError):
        verify_webhook(signed(), BODY, secrets=SECRET)


@pytest.mark.parametrize(
    ("secrets", "why"),
    [
        ([], "There is no webhook secret"),
        ("", "does not begin with 'whsec_'"),
        ("whsec_", "has 0 bytes"),
        (b"", "has 0 bytes"),
        ("whsec_c2hvcnQ=", "has 5 bytes, fewer than 16"),
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "does not begin with 'whsec_'"),
        ("whsec_***", "is not base64"),
        ("whsec_ä", "is not base64"),
        ([SECRET, None], "secret 2 is of type NoneType"),
    ],
)
def test_secret_that_protects_nothing_is_refused(secrets: object, why: str) -> None:
    """An empty environment variable must not let everybody in; the message shows nothing of the secret."""
    with pytest.raises(DefinitionError, match=why) as refused:
        verify_webhook(headers(), BODY, secrets=secrets, now=NOW)  # type: ignore[arg-type]

    assert "MfKQ" not in str(refused.value)


def test_body_must_be_the_bytes_that_came() -> None:
    """What was decoded and encoded again is not what was signed."""
    with pytest.raises(DefinitionError, match="bytes as they arrived"):
        verify_webhook(headers(), BODY.decode(), secrets=SECRET, now=NOW)  # type: ignore[arg-type]


def test_new_secrets_differ_and_fit() -> None:
    """A secret is random and has 32 bytes."""
    first, second = new_secret(), new_secret()

    assert first != second
    assert len(keys_of(first)[0]) == 32


@given(
    body=st.binary(max_size=200), key=st.binary(min_size=16, max_size=64), place=st.integers(0), bit=st.integers(0, 7)
)
def test_what_was_signed_is_accepted_and_nothing_else(body: bytes, key: bytes, place: int, bit: int) -> None:
    """Any body and key: the signature holds, and one flipped bit anywhere in the body breaks it."""
    given_headers = signed(body, secret=key)

    assert verify_webhook(given_headers, body, secrets=key, now=NOW) == MESSAGE_ID
    if body:
        changed = bytearray(body)
        changed[place % len(body)] ^= 1 << bit
        with pytest.raises(WebhookSignatureError):
            verify_webhook(given_headers, bytes(changed), secrets=key, now=NOW)


@given(values=st.lists(st.text(max_size=80), min_size=3, max_size=3), body=st.binary(max_size=50))
def test_hostile_headers_give_typed_errors(values: list[str], body: bytes) -> None:
    """Whatever stands in the headers, the answer is a WebhookError."""
    hostile = dict(zip(("webhook-id", "webhook-timestamp", "webhook-signature"), values, strict=True))

    with pytest.raises(WebhookError):
        verify_webhook(hostile, body, secrets=SECRET, now=NOW)
