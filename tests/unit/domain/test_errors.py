"""Classification of exceptions."""

from __future__ import annotations

import smtplib
import socket
import sqlite3
import urllib.error
from datetime import UTC, datetime, timedelta
from email.message import Message
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.db.utils import InterfaceError, OperationalError
from django.http import Http404
from hypothesis import given
from hypothesis import strategies as st

from django_jobs import exceptions
from django_jobs.domain.downstream import Proof, http_proof
from django_jobs.domain.errors import classify, wish
from django_jobs.domain.retry import RetryPolicy
from django_jobs.domain.retry_after import parse_retry_after
from django_jobs.domain.states import DeadReason, ErrorClass
from tests.integration.worker import odd

POLICY = RetryPolicy()
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
P, T, U = ErrorClass.PERMANENT, ErrorClass.TRANSIENT, ErrorClass.UNKNOWN
MINUTE = timedelta(minutes=1)


class MissingOrder(ObjectDoesNotExist):
    """What a model's DoesNotExist looks like: a subclass with a name of its own."""


class RequestsLikeError(OSError):
    """What an HTTPError of requests looks like: a response with a status and headers."""

    def __init__(self, status: object, headers: object = None) -> None:
        super().__init__("bad answer")
        self.response = SimpleNamespace(status_code=status, headers=headers)


class HostileError(Exception):
    """An exception whose properties raise."""

    @property
    def response(self) -> object:
        """Raise as a half-built client error does."""
        raise RuntimeError("no response here")


def named(module: str, name: str, **attributes: object) -> Exception:
    """Make an exception whose class claims to live in a module that is not imported."""
    error = type(name, (Exception,), {"__module__": module})("from far away")
    for key, value in attributes.items():
        setattr(error, key, value)
    return error


def httpx_error(status: int, **headers: str) -> httpx.HTTPStatusError:
    """Make the error that httpx raises for a status."""
    request = httpx.Request("POST", "https://pay.example/charge")
    response = httpx.Response(status, headers={key.replace("_", "-"): value for key, value in headers.items()})
    return httpx.HTTPStatusError("bad status", request=request, response=response)


def urllib_error(status: int, retry_after: str | None = None) -> urllib.error.HTTPError:
    """Make the error that urllib raises for a status."""
    headers = Message()
    if retry_after is not None:
        headers["retry-after"] = retry_after
    return urllib.error.HTTPError("https://pay.example", status, "bad", headers, None)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MissingOrder("no order"), P),
        (ValidationError("bad"), P),
        (PermissionDenied(), P),
        (Http404(), P),
        (ConnectionResetError(), T),
        (BrokenPipeError(), T),
        (TimeoutError(), T),
        (socket.gaierror(-3, "temporary failure"), T),
        (OperationalError("server closed the connection"), T),
        (InterfaceError("connection already closed"), T),
        (sqlite3.OperationalError("database is locked"), T),
        (named("psycopg", "OperationalError"), T),
        (named("psycopg2", "InterfaceError"), T),
        (httpx.ConnectTimeout("slow"), T),
        (httpx.ConnectError("refused"), T),
        (httpx.UnsupportedProtocol("ftp"), U),
        (named("requests.exceptions", "ConnectionError", response=None), T),
        (named("redis.exceptions", "TimeoutError"), T),
        (urllib.error.URLError(ConnectionRefusedError()), T),
        (urllib.error.URLError("unknown url type"), U),
        (urllib.error.URLError(urllib.error.URLError(TimeoutError())), U),
        (TypeError("unsupported operand"), U),
        (ValueError("bad"), U),
        (HostileError(), U),
        (SystemExit(1), U),
        (KeyboardInterrupt(), U),
        (MemoryError(), U),
        (RecursionError(), U),
    ],
)
def test_classify_uses_the_default_table(error: BaseException, expected: ErrorClass) -> None:
    """Without a declaration, what is known by name is permanent or transient and everything else is unknown."""
    assert classify(error, POLICY, now=NOW).error_class is expected


@pytest.mark.parametrize(
    ("error", "expected", "dead_reason"),
    [
        (exceptions.PermanentError("no"), P, DeadReason.PERMANENT),
        (exceptions.PayloadError("no"), P, DeadReason.PAYLOAD),
        (exceptions.KeyFormatError("no"), P, DeadReason.PAYLOAD),
        (exceptions.DefinitionError("no"), P, DeadReason.PERMANENT),
        (exceptions.DuplicateOfDeadJobError("no"), P, DeadReason.PERMANENT),
        (exceptions.EffectChangedError("no"), P, DeadReason.EFFECT_REVIEW),
        (exceptions.EffectKeyReusedError("no"), P, DeadReason.EFFECT_REVIEW),
        (exceptions.EffectNeedsReviewError("no"), P, DeadReason.EFFECT_REVIEW),
        (exceptions.EffectRejected("declined"), P, DeadReason.PERMANENT),
        (exceptions.EffectRejected("declined", status=402), P, DeadReason.PERMANENT),
        (exceptions.EffectRejected("busy", status=429), T, DeadReason.PERMANENT),
        (exceptions.TransientError("later"), T, DeadReason.PERMANENT),
        (exceptions.CommitLostError("lost"), T, DeadReason.PERMANENT),
        (exceptions.NoTimeLeftError("late"), T, DeadReason.PERMANENT),
        (exceptions.HardTimeoutError("slow"), U, DeadReason.PERMANENT),
        (exceptions.EffectsOpenError("open"), U, DeadReason.PERMANENT),
        (exceptions.OutsideCompletionError("where"), U, DeadReason.PERMANENT),
    ],
)
def test_classify_knows_the_errors_of_the_package(
    error: BaseException, expected: ErrorClass, dead_reason: DeadReason
) -> None:
    """Each error of the package has its class, and a permanent one names its dead letter."""
    found = classify(error, POLICY, now=NOW)
    assert (found.error_class, found.dead_reason) == (expected, dead_reason)


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ((400, 401, 403, 404, 410, 422), P),
        ((408, 425, 429, 500, 502, 503, 504, 599), T),
        ((402, 409, 300, 418, 451), U),
    ],
)
def test_classify_reads_the_status_of_every_client(statuses: tuple[int, ...], expected: ErrorClass) -> None:
    """httpx, requests, urllib and aiohttp errors are read alike."""
    for status in statuses:
        aiohttp = named("aiohttp.client_exceptions", "ClientResponseError", status=status, headers={})
        for error in (httpx_error(status), RequestsLikeError(status), urllib_error(status), aiohttp):
            assert classify(error, POLICY, now=NOW).error_class is expected, (status, error)


@pytest.mark.parametrize("status", [True, "503", None, 0, 99999])
def test_classify_ignores_a_status_that_is_none(status: object) -> None:
    """A response without a real status says nothing."""
    assert classify(RequestsLikeError(status), POLICY, now=NOW).error_class is U


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (smtplib.SMTPDataError(554, b"spam"), P),
        (smtplib.SMTPAuthenticationError(535, b"no"), P),
        (smtplib.SMTPDataError(451, b"greylisted"), T),
        (smtplib.SMTPResponseException(-1, b"garbage"), U),
        (smtplib.SMTPServerDisconnected("gone"), T),
        (smtplib.SMTPNotSupportedError("no utf8"), U),
        (smtplib.SMTPRecipientsRefused({"a@x.example": (550, b"unknown"), "b@x.example": (550, b"unknown")}), P),
        (smtplib.SMTPRecipientsRefused({"a@x.example": (550, b"unknown"), "b@x.example": (450, b"later")}), T),
        (smtplib.SMTPRecipientsRefused({}), U),
        (named("smtplib", "SMTPRecipientsRefused", recipients=None), U),
    ],
)
def test_classify_reads_smtp_replies(error: BaseException, expected: ErrorClass) -> None:
    """A 5xx is final and a 4xx passes; of several recipients one that may pass is worth another try."""
    assert classify(error, POLICY, now=NOW).error_class is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("120", 2 * MINUTE),
        (" 1.5 ", timedelta(seconds=1.5)),
        ("0", timedelta(0)),
        ("1000000000", timedelta(days=3660)),
        ("9" * 18, timedelta(days=3660)),
        ("9" * 19, timedelta(days=3660)),
        ("9" * 5000, timedelta(days=3660)),
        ("60, 120", 2 * MINUTE),
        ("60,60", MINUTE),
        ("60,", MINUTE),
        ("60, soon", None),
        ("60 120", None),
        ("Sun, 01 Mar 2026 12:01:00 GMT, Sun, 01 Mar 2026 12:02:00 GMT", 2 * MINUTE),
        ("Sunday, 01-Mar-26 12:01:00 GMT", MINUTE),
        ("Thursday, 01-Mar-77 12:01:00 GMT", timedelta(0)),
        ("Sun Mar  1 12:01:00 2026", MINUTE),
        ("sun, 01 mar 2026 12:01:00 gmt", MINUTE),
        ("Sun, 01 Mar 2026 12:00:60 GMT", timedelta(seconds=59)),
        ("Sun, 01 Mar 2026 24:01:00 GMT", None),
        ("Sun, 01 Foo 2026 12:01:00 GMT", None),
        ("Sun, 01 Mar 0000 12:01:00 GMT", None),
        ("Sun, 01 Mar 2026 12:01:00 +0200", None),
        ("2026-03-01T12:01:00Z", None),
        ("P1D", None),
        (",", None),
        ("-1", None),
        ("1e9", None),
        ("soon", None),
        ("", None),
        ("²", None),
        ("Sun, 01 Mar 2026 12:01:00 GMT", MINUTE),
        ("Sun, 01 Mar 2026 12:01:00 -0000", MINUTE),
        ("Sun, 01 Mar 2026 11:00:00 GMT", timedelta(0)),
        ("Fri, 31 Dec 9999 23:59:59 GMT", timedelta(days=3660)),
        ("Sun, 99 Mar 2026 12:01:00 GMT", None),
    ],
)
def test_f20_parse_retry_after_reads_seconds_and_dates(text: str, expected: timedelta | None) -> None:
    """Seconds and HTTP dates are honoured, the past means at once, nonsense is ignored."""
    assert parse_retry_after(text, now=NOW) == expected


_SIGNS = st.text(alphabet="0123456789,.-+: GMTSunMar\t", max_size=60)


@given(st.one_of(st.text(), _SIGNS))
def test_parse_retry_after_never_raises(text: str) -> None:
    """Whatever a server writes into the header, the answer is a bounded time or None."""
    found = parse_retry_after(text, now=NOW)
    assert found is None or timedelta(0) <= found <= timedelta(days=3660)


@given(st.datetimes(datetime(1970, 1, 1), datetime(2069, 12, 31)))  # noqa: DTZ001  bounds are naive by contract
def test_parse_retry_after_reads_every_form_of_one_moment_alike(moment: datetime) -> None:
    """The three forms of HTTP name one moment, to the second; a year of two digits is taken for the near one."""
    moment = moment.replace(microsecond=0, tzinfo=UTC)
    wish = min(max(moment - NOW, timedelta(0)), timedelta(days=3660))
    assert parse_retry_after(f"{moment:%a, %d %b %Y %H:%M:%S GMT}", now=NOW) == wish
    assert parse_retry_after(f"{moment:%a %b} {moment.day:2d} {moment:%H:%M:%S %Y}", now=NOW) == wish
    near = min(max(moment - NOW, timedelta(0)), timedelta(days=3660)) if abs(moment.year - NOW.year) < 50 else None
    assert near is None or parse_retry_after(f"{moment:%A, %d-%b-%y %H:%M:%S GMT}", now=NOW) == near


@pytest.mark.parametrize(
    ("statuses", "proof"),
    [
        ((200, 201, 202, 203, 204, 205), Proof.APPLIED),
        (
            (400, 401, 402, 403, 404, 405, 407, 410, 411, 412, 413, 414, 415, 416, 417, 422, 426, 428, 431, 451),
            Proof.REFUSED,
        ),
        ((421, 425, 429), Proof.REFUSED_FOR_NOW),
    ],
)
def test_http_proof_follows_the_table(statuses: tuple[int, ...], proof: Proof) -> None:
    """What is in no row proves nothing: informational answers, redirects, server errors and inventions."""
    assert {status for status in range(1000) if http_proof(status) is proof} == set(statuses)
    assert all(http_proof(status) is Proof.NOTHING for status in (0, 100, 206, 207, 301, 409, 418, 500, 503, 600, 999))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (httpx_error(429, retry_after="60"), MINUTE),
        (httpx_error(503, RETRY_AFTER="Sun, 01 Mar 2026 12:01:00 GMT"), MINUTE),
        (httpx_error(429, retry_after="soon"), None),
        (httpx_error(429), None),
        (urllib_error(429, "60"), MINUTE),
        (RequestsLikeError(429, {"retry-after": "60"}), MINUTE),
        (RequestsLikeError(429, {"Retry-After": 60}), None),
        (RequestsLikeError(429, "not headers"), None),
        (RequestsLikeError(429, SimpleNamespace(get=lambda: None)), None),
        (exceptions.RateLimited(MINUTE), MINUTE),
        (exceptions.TransientError("later", retry_after=-MINUTE), None),
        (exceptions.QueueFullError("full", retry_after=MINUTE), MINUTE),
    ],
)
def test_classify_carries_the_wish_to_come_back_later(error: BaseException, expected: timedelta | None) -> None:
    """Retry-After and the package's own wish are handed on."""
    assert classify(error, POLICY, now=NOW).retry_after == expected


def test_classify_lets_the_policy_speak_first() -> None:
    """What a policy declares overrides the package's errors and the default table, permanent before transient."""
    policy = RetryPolicy(permanent=(TimeoutError, httpx.HTTPStatusError), transient=(OSError, exceptions.PayloadError))
    assert classify(TimeoutError(), policy).error_class is P
    assert classify(httpx_error(503), policy).error_class is P
    assert classify(exceptions.PayloadError("x"), policy).error_class is T
    found = classify(RequestsLikeError(404, {"Retry-After": "60"}), policy)
    assert (found.error_class, found.retry_after) == (T, MINUTE)
    assert "declared transient by the retry policy" in found.reason


def test_classify_does_not_follow_causes() -> None:
    """An error that wraps a transient one is what its handler made of it."""
    error = RuntimeError("could not charge")
    error.__cause__ = TimeoutError()
    assert classify(error, POLICY).error_class is U


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([ValidationError("a"), PermissionDenied()], P),
        ([ValidationError("a"), TimeoutError()], T),
        ([TimeoutError(), exceptions.RateLimited(MINUTE)], T),
        ([ValidationError("a"), ValueError("b"), TimeoutError()], U),
        ([ExceptionGroup("in", [ValidationError("a"), ExceptionGroup("deep", [KeyError("b")])])], U),
    ],
)
def test_classify_takes_the_worst_member_of_a_group(members: list[Exception], expected: ErrorClass) -> None:
    """A group is permanent only if all members are, unknown if any is, else transient."""
    found = classify(ExceptionGroup("several", members), POLICY, now=NOW)
    assert found.error_class is expected
    assert "errors in a group" in found.reason


def test_classify_hands_on_the_longest_wish_of_a_group() -> None:
    """A group waits for the member that asks for the longest pause, and a declared group type is not opened."""
    members: list[Any] = [exceptions.RateLimited(MINUTE), exceptions.RateLimited(2 * MINUTE), TimeoutError()]
    assert classify(ExceptionGroup("several", members), POLICY).retry_after == 2 * MINUTE
    declared = RetryPolicy(permanent=(ExceptionGroup,))
    assert classify(ExceptionGroup("several", members), declared).error_class is P


LATER = NOW + timedelta(hours=1)


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (exceptions.Snooze(MINUTE), MINUTE),
        (ExceptionGroup("several", [exceptions.Snooze(MINUTE), exceptions.Snooze(2 * MINUTE)]), 2 * MINUTE),
        (ExceptionGroup("several", [exceptions.Snooze(MINUTE), ValueError("no")]), None),
        (ValueError("no"), None),
    ],
)
def test_wish_is_heard_if_every_member_snoozes(error: BaseException, asked: timedelta | None) -> None:
    """The longest delay speaks for a group; one member that failed makes it a failure."""
    heard = wish(error)

    assert (heard.delay if isinstance(heard, exceptions.Snooze) else heard) == asked


def test_wish_of_waiting_effects_is_the_latest_time() -> None:
    """Of several effects that wait for evidence the last one decides when to look again; nonsense is the earliest time."""
    waiting = [exceptions.EffectUncertain("open", retry_at=at) for at in (NOW, LATER, None, LATER.replace(tzinfo=None))]

    heard = wish(ExceptionGroup("several", waiting))

    assert heard is waiting[1]


def test_wish_of_an_error_that_cannot_be_looked_at_is_none() -> None:
    """Whatever a class does when somebody looks at it, its error is a failure like any other, also within a group."""
    shy = odd.TrappedError("no")

    assert wish(shy) is None
    assert wish(ExceptionGroup("several", [exceptions.Snooze(MINUTE), shy])) is None
