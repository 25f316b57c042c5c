"""What an exception tells about the answer of another service: HTTP and SMTP status, and when to come back.

Client libraries are recognised by the names and attributes of their exceptions, so none of them is imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from django_jobs.domain.retry_after import parse_retry_after
from django_jobs.domain.states import ErrorClass

PERMANENT_STATUS = frozenset({400, 401, 403, 404, 410, 422})
TRANSIENT_STATUS = frozenset({408, 425, 429})

# What an answer proves about the one request that it answers. Not listed is what proves nothing: redirects, 5xx, and
# 4xx that are given after the work was begun or about somebody else's (406, 408, 409, 423, 424, 499).
APPLIED_STATUS = frozenset({200, 201, 202, 203, 204, 205})
REFUSED_STATUS = frozenset(
    {400, 401, 402, 403, 404, 405, 407, 410, 411, 412, 413, 414, 415, 416, 417, 422, 426, 428, 431, 451}
)
REFUSED_FOR_NOW_STATUS = frozenset({421, 425, 429})

# The clients whose exception itself carries the status, under this attribute.
_OWN_STATUS = {
    "urllib.error.HTTPError": "code",
    "aiohttp.client_exceptions.ClientResponseError": "status",
    "azure.core.exceptions.HttpResponseError": "status_code",
    "google.api_core.exceptions.GoogleAPICallError": "code",
}

_ENHANCED = re.compile(r"[245]\.[0-9]{1,3}\.[0-9]{1,3}(?![0-9])")
_ABOUT_SESSION = frozenset({421, 530, 534, 535, 538})  # closing, and the codes of STARTTLS and AUTH


class Proof(StrEnum):
    """What the status of an answer proves about the request that it answers."""

    APPLIED = "applied"
    REFUSED = "refused"  # not applied, and asking again cannot help
    REFUSED_FOR_NOW = "refused_for_now"  # not applied; later may be better
    NOTHING = "nothing"


def qualified_names(error: BaseException) -> Iterator[str]:
    """Yield ``module.name`` of the exception's class and of each base, most specific first."""
    for kind in type(error).__mro__:
        yield f"{kind.__module__}.{kind.__qualname__}"


def attribute(target: object, name: str) -> object:
    """Return an attribute or None; properties of foreign exceptions may raise anything."""
    try:
        return getattr(target, name, None)
    except Exception:  # noqa: BLE001  a foreign property must not hide the error that is being looked at
        return None


def http_class(status: int) -> ErrorClass:
    """Return what an HTTP status says about trying again; what is in neither list is unknown."""
    if status in PERMANENT_STATUS:
        return ErrorClass.PERMANENT
    if status in TRANSIENT_STATUS or 500 <= status <= 599:
        return ErrorClass.TRANSIENT
    return ErrorClass.UNKNOWN


def http_proof(status: int, *, refused_before: frozenset[int] = REFUSED_FOR_NOW_STATUS) -> Proof:
    """Return what a status proves; ``refused_before`` are those that the service gives before anything runs."""
    if status in refused_before:
        return Proof.REFUSED_FOR_NOW
    if status in REFUSED_STATUS:
        return Proof.REFUSED
    return Proof.APPLIED if status in APPLIED_STATUS else Proof.NOTHING


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status of an error raised by httpx, requests, aiohttp, urllib or a client shaped like them."""
    response = attribute(error, "response")
    status = attribute(response, "status_code")
    if isinstance(response, dict):  # botocore
        details = response.get("ResponseMetadata")
        status = details.get("HTTPStatusCode") if isinstance(details, dict) else None
    for name in qualified_names(error):
        if name in _OWN_STATUS:
            status = attribute(error, _OWN_STATUS[name])
    if isinstance(status, int) and not isinstance(status, bool) and 100 <= status <= 599:
        return int(status)
    return None


class Reply(NamedTuple):
    """An SMTP reply: its code, and the enhanced code (RFC 3463) that its text begins with, or ''."""

    code: int
    enhanced: str = ""

    def __str__(self) -> str:
        return f"{self.code} {self.enhanced}".strip()

    @property
    def about_session(self) -> bool:
        """Whether it is about who may talk to the server, not about a mail."""
        return self.code in _ABOUT_SESSION


def smtp_replies(error: BaseException) -> tuple[Reply, ...]:
    """Return the SMTP replies that an error of :mod:`smtplib` carries, one per refused recipient."""
    names = set(qualified_names(error))
    if "smtplib.SMTPResponseException" in names:
        found = [(attribute(error, "smtp_code"), attribute(error, "smtp_error"))]
    elif "smtplib.SMTPRecipientsRefused" in names:
        recipients = attribute(error, "recipients")
        replies = recipients.values() if isinstance(recipients, dict) else ()
        found = [(*reply, "")[:2] for reply in replies if isinstance(reply, tuple) and reply]
    else:
        return ()
    return tuple(smtp_reply(code, text) for code, text in found if isinstance(code, int))


def smtp_reply(code: int, text: object) -> Reply:
    """Return a reply as the server wrote it."""
    plain = text.decode("ascii", "replace") if isinstance(text, bytes) else str(text)
    enhanced = _ENHANCED.match(plain)
    return Reply(code, enhanced[0] if enhanced else "")


def smtp_class(replies: tuple[Reply, ...]) -> ErrorClass:
    """Return what SMTP replies say: transient if any is a 4xx, permanent if all are 5xx, else unknown.

    An enhanced code of class 4 makes a 5xx a transient one: greylists answer so.
    """
    if any(400 <= reply.code <= 499 or reply.enhanced.startswith("4") for reply in replies):
        return ErrorClass.TRANSIENT
    if all(500 <= reply.code <= 599 for reply in replies):
        return ErrorClass.PERMANENT
    return ErrorClass.UNKNOWN


def retry_after(error: BaseException, *, now: datetime) -> timedelta | None:
    """Return how long the answer behind ``error`` asks to wait, or None if it does not say or says nonsense."""
    for carrier in (attribute(error, "response"), error):
        header = _header(attribute(carrier, "headers"), "Retry-After")
        if header is not None:
            return parse_retry_after(header, now=now)
    return None


def _header(headers: object, name: str) -> str | None:
    get = attribute(headers, "get")
    if not callable(get):
        return None
    for spelling in (name, name.lower()):
        try:
            value = get(spelling)
        except Exception:  # noqa: BLE001  see attribute()
            return None
        if isinstance(value, str):
            return value
    return None
