"""What an exception tells about the answer of another service: HTTP and SMTP status, and when to come back.

Client libraries are recognised by the names and attributes of their exceptions, so none of them is imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from django_jobs.domain.states import ErrorClass

PERMANENT_STATUS = frozenset({400, 401, 403, 404, 410, 422})
TRANSIENT_STATUS = frozenset({408, 425, 429})

# The clients whose exception itself carries the status, under this attribute.
_OWN_STATUS = {
    "urllib.error.HTTPError": "code",
    "aiohttp.client_exceptions.ClientResponseError": "status",
}
_SECONDS = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,9})?")
_LONGEST = timedelta(days=3660)  # beyond this the header is nonsense; it is kept finite so that sums cannot overflow


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


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status of an error raised by httpx, requests, aiohttp, urllib or a client shaped like them."""
    status = attribute(attribute(error, "response"), "status_code")
    for name in qualified_names(error):
        if name in _OWN_STATUS:
            status = attribute(error, _OWN_STATUS[name])
    if isinstance(status, int) and not isinstance(status, bool) and 100 <= status <= 599:
        return int(status)
    return None


def smtp_codes(error: BaseException) -> tuple[int, ...]:
    """Return the SMTP reply codes that an error of :mod:`smtplib` carries, one per refused recipient."""
    names = set(qualified_names(error))
    if "smtplib.SMTPResponseException" in names:
        found = [attribute(error, "smtp_code")]
    elif "smtplib.SMTPRecipientsRefused" in names:
        recipients = attribute(error, "recipients")
        replies = recipients.values() if isinstance(recipients, dict) else ()
        found = [reply[0] for reply in replies if isinstance(reply, tuple) and reply]
    else:
        return ()
    return tuple(code for code in found if isinstance(code, int))


def smtp_class(codes: tuple[int, ...]) -> ErrorClass:
    """Return what SMTP replies say: transient if any is a 4xx, permanent if all are 5xx, else unknown."""
    if any(400 <= code <= 499 for code in codes):
        return ErrorClass.TRANSIENT
    if all(500 <= code <= 599 for code in codes):
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


def parse_retry_after(text: str, *, now: datetime) -> timedelta | None:
    """Read a Retry-After header: seconds or an HTTP date. A date in the past means at once, nonsense means None."""
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return timedelta(seconds=min(float(text), _LONGEST.total_seconds()))
    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return min(max(moment - now, timedelta(0)), _LONGEST)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
