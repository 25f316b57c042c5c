"""A destination that takes events by HTTP: CloudEvents in JSON, signed as Standard Webhooks."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from ssl import SSLContext

try:
    import httpcore
    import httpx
except ImportError as error:
    msg = "The webhook publisher needs httpx: pip install 'django-durable-jobs[httpx]'."
    raise ImportError(msg) from error

from django_jobs import clock
from django_jobs.domain.events import Confirmed, Error, Guarantee, Nacked, Parcel, Report, Returned, Timeout
from django_jobs.domain.retry_after import parse_retry_after
from django_jobs.domain.secret_forms import secrets_of_url
from django_jobs.exceptions import DefinitionError
from django_jobs.masking import Known
from django_jobs.outbox import signing
from django_jobs.outbox.cloud_event import CONTENT_TYPE, document
from django_jobs.outbox.publishers.addresses import parse_target
from django_jobs.outbox.publishers.wire import Answer, Line, Resolve, system_addresses

TIMEOUT = timedelta(seconds=15)
LEAST_TIME = 0.05  # seconds; with less no request is begun
REASON_LIMIT = 300
RECEIPT_LIMIT = 255

# There is nobody here for this event. Other 4xx refuse this event; those below are about the way or the moment.
NOWHERE = frozenset({404, 405, 410})
NOT_ABOUT_THE_EVENT = frozenset({407, 408, 421, 423, 425, 429})

Headers = Mapping[str, str] | Callable[[], Mapping[str, str]]
Given = signing.Secrets | Callable[[], signing.Secrets]

_OURS = frozenset(
    {
        *("host", "content-length", "content-type", "transfer-encoding", "connection", "accept-encoding"),
        *(signing.ID, signing.TIMESTAMP, signing.SIGNATURE),
    }
)
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class Webhook:
    """Posts each event to a URL: one request per event, one after another, never a second one by itself.

    Not followed: redirects. Not read: proxies and credentials from the environment. Confirmed is an event when the
    receiver has answered with a 2xx; until then it is delivered again, with the same ``webhook-id``.

    Args:
        url: Where to; https.
        secrets: One signing secret or several (while one is being replaced), or a function that returns them.
        timeout: The longest that one request may take, from the look-up of the name to the last byte of the answer.
        headers: More headers, for example an authorization, or a function that returns them for each request.
        allow_http: Permit http; for tests and inside a network of your own.
        allow_private: Permit addresses that are not public; never where others choose the URL.
        ports: The ports that the URL may have; default 443 and 8443, with ``allow_http`` for http 80 and 8080.
        ssl_context: How to check the receiver's certificate; default: the certificates of ``certifi``.
        resolve: Takes the place of the system's look-up of names; for tests.

    Raises:
        DefinitionError: The URL, the secrets, the headers or the time cannot be.
    """

    guarantee = Guarantee(
        semantics="The receiver has answered with a 2xx: it says that it has the event.",
        duplicate_window=None,
        keeps_order=False,  # a request that timed out may arrive after the next one
        docs="docs/how-to/send-webhooks.md",
    )

    def __init__(
        self,
        url: str,
        *,
        secrets: Given,
        timeout: timedelta = TIMEOUT,
        headers: Headers | None = None,
        allow_http: bool = False,
        allow_private: bool = False,
        ports: Collection[int] | None = None,
        ssl_context: SSLContext | None = None,
        resolve: Resolve = system_addresses,
    ) -> None:
        if not isinstance(timeout, timedelta) or not timedelta(milliseconds=100) <= timeout <= timedelta(minutes=10):
            msg = f"The timeout of a webhook must be a timedelta from 0.1 s to 10 minutes, not {timeout!r}."
            raise DefinitionError(msg)
        self._target = parse_target(_parsed(url), allow_http=allow_http, ports=ports)
        self._secrets = secrets
        self._headers = headers
        self._timeout = timeout.total_seconds()
        self._known = Known()
        if not callable(secrets):
            signing.keys_of(secrets)
        if headers is not None and not callable(headers):
            _checked(headers)
        self._line = Line(self._target, resolve=resolve, allow_private=allow_private, ssl_context=ssl_context)

    def __repr__(self) -> str:
        return f"<webhook {self._target.place}>"

    def publish_batch(self, parcels: Sequence[Parcel], *, seconds: float) -> list[Report]:
        """Post the events one after another; what cannot be begun within ``seconds`` is reported as ``Error``."""
        ends_at = time.monotonic() + seconds
        reports: list[Report] = []
        for parcel in parcels:
            left = min(ends_at - time.monotonic(), self._timeout)
            reports.append(self._publish(parcel, left))
        return reports

    def close(self) -> None:
        """Close the connection; the next batch opens another."""
        self._line.close()

    def _publish(self, parcel: Parcel, seconds: float) -> Report:
        if seconds < LEAST_TIME:
            return Error("not begun: no time left for it in this batch")
        self._line.touched = False
        try:
            body = document(parcel.event)
            headers = self._all_headers(str(parcel.event.id), body)
        except Exception as error:  # noqa: BLE001  the project's own functions; no byte was sent
            return Error(f"not sent: headers or secrets could not be made: {type(error).__name__}")
        try:
            answer = self._line.post(headers, body, seconds=seconds)
        except Exception as error:  # noqa: BLE001  whatever it is, a dispatcher goes on
            return self._broken(error)
        return self._read(answer)

    def _all_headers(self, message_id: str, body: bytes) -> list[tuple[str, str]]:
        given = self._secrets() if callable(self._secrets) else self._secrets
        secrets = [given] if isinstance(given, str | bytes) else list(given)
        keys = signing.keys_of(secrets)
        timestamp = int(clock.now().timestamp())
        own = _checked((self._headers() if callable(self._headers) else self._headers) or {})
        self._known = Known(self._secret_texts(secrets, own))
        return [
            ("Host", self._target.host_header),
            ("User-Agent", "django-jobs-webhook"),
            ("Accept", "*/*"),
            ("Accept-Encoding", "identity"),
            *own.items(),
            ("Content-Type", CONTENT_TYPE),
            ("Content-Length", str(len(body))),
            (signing.ID, message_id),
            (signing.TIMESTAMP, str(timestamp)),
            (signing.SIGNATURE, signing.sign(keys, message_id, timestamp, body)),
        ]

    def _broken(self, error: Exception) -> Report:
        """Say what an exchange without an answer means: the event may have arrived from the first byte on."""
        told = self._told(f"{type(error).__name__}: {error}")
        if not self._line.touched:
            return Error(f"not sent to {self._target.place}: {told}")
        if isinstance(error, httpcore.TimeoutException):
            return Timeout(f"{self._target.place} did not answer in time; it may have arrived: {told}")
        if isinstance(error, httpcore.NetworkError) or "disconnected" in str(error):
            return Timeout(f"{self._target.place} closed the connection unanswered; it may have arrived: {told}")
        return Error(f"{self._target.place} answered what cannot be read; it may have arrived: {told}")

    def _read(self, answer: Answer) -> Report:
        """Say what a status means for the event and for the destination."""
        status = answer.status
        if 200 <= status < 300:
            return Confirmed(self._receipt(answer), status)
        if 300 <= status < 400:
            return Error(f"answered {status}: redirects are not followed; correct the URL", status)
        if status in NOWHERE:
            return Returned(f"answered {status}: there is nobody for this event", status)
        if 400 <= status < 500 and status not in NOT_ABOUT_THE_EVENT:
            return Nacked(f"answered {status}: it refuses this event", status)
        wish = parse_retry_after(answer.headers.get("retry-after", ""), now=clock.now())
        return Error(f"answered {status}", status, retry_after=wish)

    def _receipt(self, answer: Answer) -> str:
        """Return what names the event at the receiver: the request id that it gave, or the id in its JSON."""
        for name in ("x-request-id", "request-id"):
            if answer.headers.get(name):
                return self._told(answer.headers[name])[:RECEIPT_LIMIT]
        try:
            found = json.loads(answer.body).get("id")
        except (ValueError, AttributeError, RecursionError):
            return ""
        return self._told(found)[:RECEIPT_LIMIT] if isinstance(found, str) else ""

    def _told(self, text: str) -> str:
        """Return a foreign text as it may be stored and shown: printable, short, and without what we know as secret."""
        plain = "".join(sign if sign.isprintable() else " " for sign in self._known.hidden(text)[: 4 * REASON_LIMIT])
        return self._known.told(plain)[:REASON_LIMIT]

    def _secret_texts(self, secrets: Sequence[signing.Secret], own: Mapping[str, str]) -> list[str | bytes]:
        """Return what a request carries that nobody else may learn; any header of the project may be a credential."""
        return [*secrets, *own.values(), *secrets_of_url(self._target.path.decode("latin-1"))]


def _parsed(url: object) -> httpx.URL:
    if not isinstance(url, str) or not url:
        msg = f"The URL of a webhook is text that begins with https://, not {type(url).__name__}."
        raise DefinitionError(msg)
    try:
        return httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as error:  # IDNA errors are ValueErrors
        msg = f"The URL of a webhook cannot be read: {type(error).__name__}."
        raise DefinitionError(msg) from None


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers of the project, or refuse those that would break the request or pass for ours."""
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name) or name.lower() in _OURS:
            msg = f"The webhook header {str(name)[:50]!r} is no header name, or is one that the publisher sets itself."
            raise DefinitionError(msg)
        if not isinstance(value, str) or not (value.isascii() and value.isprintable()):
            msg = f"The webhook header {name!r} has a value that is not printable ASCII."
            raise DefinitionError(msg)
    return dict(headers)
