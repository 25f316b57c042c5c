"""
The caller's side of the payments provider: one request, one answer, or an error that says what is known.

No retries, no redirects, no proxies from the environment: whoever calls decides what happens next, from evidence.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import httpcore
import httpx
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from django_jobs.effects.adapters.wire import DeadlineTransport, Wire

ANSWER_LIMIT = 1024 * 1024
CENT = Decimal("0.01")
UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
BROKEN = (httpx.HTTPError, httpx.StreamError, httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError)


class PaymentsError(Exception):
    """Base of what the client raises."""


class NotSent(PaymentsError):  # noqa: N818  evidence about a request, not a fault of the program
    """Proved: no byte of the request left this process (no address, connection refused, no time left to begin)."""


class MaybeSent(PaymentsError):  # noqa: N818
    """The request may have arrived and may have been applied; only the provider knows."""


class LookupFailed(PaymentsError):  # noqa: N818
    """The provider answered a lookup with something other than a list; `answer` holds it."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"The provider could not be asked: status {answer.status}.")
        self.answer = answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A complete answer; `json` is None if the text is no JSON, header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    json: Any | None
    text: str

    @property
    def replayed(self) -> bool:
        """Whether the provider answered from its memory of the key and applied nothing again."""
        return self.headers.get("idempotent-replayed") == "true"

    @property
    def request_id(self) -> str | None:
        """The provider's own id of the request, for its support and for our records."""
        return self.headers.get("x-request-id")


class PaymentsClient:
    """
    Talks to one provider; safe to share between threads.

    Every `timeout` is the whole time for connecting, writing and reading, in seconds. A `transport` of your own (for
    example `httpx.MockTransport`) stands in for the network in tests.
    """

    def __init__(self, base_url: str, *, transport: httpx.BaseTransport | None = None) -> None:
        if httpx.URL(base_url).scheme not in {"http", "https"}:
            raise ValueError(f"The provider's URL has to begin with http:// or https://, not {base_url!r}.")
        self.base_url = base_url.rstrip("/")
        self._transport = transport

    def charge(
        self, *, order_id: int, amount: Decimal | str, currency: str, key: str | None, operation: str, timeout: float
    ) -> Answer:
        """Charge an order and return whatever the provider answered. Raises NotSent or MaybeSent."""
        body = {"order_id": order_id, "amount": _money(amount), "currency": currency, "operation": operation}
        return self._send("POST", "/charges", body=body, key=key, timeout=timeout)

    def refund(self, *, charge: str, key: str | None, timeout: float, operation: str | None = None) -> Answer:
        """Refund a charge as a whole and return whatever the provider answered. Raises NotSent or MaybeSent."""
        body = {"charge": charge} | ({} if operation is None else {"operation": operation})
        return self._send("POST", "/refunds", body=body, key=key, timeout=timeout)

    def find(
        self, *, order_id: int | None = None, operation: str | None = None, key: str | None = None, timeout: float
    ) -> list[dict[str, Any]]:
        """
        Return the charges that the provider knows, oldest first; look at `status` (succeeded, declined).

        Raises NotSent, MaybeSent or LookupFailed; each of them means: nothing was learned.
        """
        equal = {"order_id": order_id, "operation": operation, "idempotency_key": key}
        return self._find("/charges", equal, timeout=timeout)

    def find_refunds(
        self, *, charge: str | None = None, operation: str | None = None, key: str | None = None, timeout: float
    ) -> list[dict[str, Any]]:
        """Return the refunds that the provider knows, oldest first; raises as `find` does."""
        equal = {"charge": charge, "operation": operation, "idempotency_key": key}
        return self._find("/refunds", equal, timeout=timeout)

    def _find(self, path: str, equal: Mapping[str, object], *, timeout: float) -> list[dict[str, Any]]:
        query = {name: str(value) for name, value in equal.items() if value is not None}
        if not query:
            raise ValueError("Say what to look for: at least one filter is needed.")
        answer = self._send("GET", path, query=query, timeout=timeout)
        data = answer.json.get("data") if isinstance(answer.json, dict) else None
        if answer.status != 200 or not isinstance(data, list):
            raise LookupFailed(answer)
        return data

    def _send(
        self,
        method: str,
        path: str,
        *,
        timeout: float,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Answer:
        if timeout <= 0:
            raise NotSent("There was no time left to send the request.")
        end = time.monotonic() + timeout
        wire = Wire(lambda: end - time.monotonic())
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        # Sorted and compact: the same request has the same bytes each time, which the provider insists on.
        content = None if body is None else json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
        request = httpx.Request(method, self.base_url + path, params=query, headers=headers, content=content)
        try:
            return self._exchange(request, wire)
        except BROKEN as error:
            # A transport of the caller's own does not watch the wire; there only the kind of error is a proof.
            unsent = self._transport is None or isinstance(error, UNSENT)
            if unsent and not wire.touched:
                raise NotSent(_reason(error)) from error
            raise MaybeSent(_reason(error)) from error

    def _exchange(self, request: httpx.Request, wire: Wire) -> Answer:
        transport = self._transport or DeadlineTransport(wire)
        phase = httpx.Timeout(max(wire.left(), 0.001))
        client = httpx.Client(transport=transport, timeout=phase, trust_env=False, follow_redirects=False)
        try:
            response = client.send(request, stream=True)
            try:
                return _read(response, wire)
            finally:
                response.close()
        finally:
            if self._transport is None:
                client.close()


def configured_client() -> PaymentsClient:
    """Return a client for `settings.PAYMENTS_URL`, else for the variable of that name in the environment."""
    url = getattr(settings, "PAYMENTS_URL", None) if settings.configured else None
    url = url or os.environ.get("PAYMENTS_URL")
    if not url:
        raise ImproperlyConfigured("Set PAYMENTS_URL, in the settings or the environment, to the provider's base URL.")
    return PaymentsClient(str(url))


def _read(response: httpx.Response, wire: Wire) -> Answer:
    content = b""
    for chunk in response.iter_bytes():
        content += chunk
        if wire.left() <= 0:
            raise httpx.ReadTimeout("no time left to read")
        if len(content) > ANSWER_LIMIT:
            raise httpx.ReadError(f"the answer is longer than {ANSWER_LIMIT} bytes")
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    text = content.decode("utf-8", errors="replace")
    return Answer(status=response.status_code, headers=dict(response.headers), json=value, text=text)


def _money(amount: Decimal | str) -> str:
    """Return the amount with two places; more of them are an error here, since rounding money in silence is one."""
    value = Decimal(amount)
    if not value.is_finite() or value != value.quantize(CENT):
        raise ValueError(f"An amount has at most two places, not {amount!s}.")
    return f"{value:.2f}"


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
