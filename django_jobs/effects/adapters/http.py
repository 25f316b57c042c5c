"""JSON over HTTP as an operation: one request with an idempotency header, and what its answer proves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from ssl import SSLContext
from typing import Any, TypeVar

try:
    import httpcore
    import httpx
except ImportError as error:
    msg = "HttpJson needs httpx: pip install 'django-durable-jobs[httpx]'."
    raise ImportError(msg) from error

from django_jobs import clock
from django_jobs.domain.downstream import REFUSED_FOR_NOW_STATUS, Proof, http_proof
from django_jobs.domain.effects import (
    Confirmed,
    Dedupe,
    Guarantees,
    Outcome,
    Reconciliation,
    Rejected,
    Unknown,
    Verdict,
)
from django_jobs.domain.identity import canonical
from django_jobs.domain.retry import RetryPolicy
from django_jobs.domain.retry_after import parse_retry_after
from django_jobs.effects.adapter import DEFAULT_TIMEOUT
from django_jobs.effects.adapters.wire import DeadlineTransport, Wire
from django_jobs.effects.call import EffectCall
from django_jobs.exceptions import DefinitionError
from django_jobs.masking import Known, secret_headers

ANSWER_LIMIT = 1024 * 1024
UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
BROKEN = (httpx.HTTPError, httpx.StreamError, httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError)

HTML = ("text/html", "application/xhtml+xml")  # what proxies, gateways and misrouted addresses answer with

Url = str | Callable[..., str]

LEAST_SECRET = 6  # signs of a part of a secret: an answer is data, in which a shorter one may stand by chance
_FOREIGN = ("reason", "provider_request_id", "result", "evidence")


class HttpJson:
    """An operation that sends its request as JSON to an HTTP service.

    Not followed: redirects. Not read: proxies and credentials from the environment. Not kept: connections and headers;
    ``headers`` is called for each request, so that secrets are never stored.

    Args:
        name: What the operation is called, for example ``crm.create_contact``.
        method: POST, PUT, PATCH or DELETE.
        url: The address, or a function of the request's values that returns it.
        guarantees: What the service promises about a repeated request.
        body: A function of the call and the request's values that returns the JSON to send, for example with
            ``call.operation_id`` in it; default: the values as they are. It must give the same for the same values.
        headers: A function that returns headers, for example the authorization.
        key_header: The header that carries the key; None sends none.
        ref_field: Where a JSON answer names what was made, dots for nesting; None when it names nothing.
        refused_before: Statuses that the service gives before anything runs: not applied, and later may be better.
        reconcile_url: A function of the call and the request's values that returns where to ask what happened; needs
            ``can_reconcile`` in the guarantees.
        read_found: What the JSON of a 200 to that question means; it returns a Verdict or a Reconciliation. By default
            the operation succeeded if ``ref_field`` is there (or is None): an empty list of what was found is no proof.
        timeout: The longest one request may take.
        requires_key: Refuse the effect without ``key=``.
        owner: Who is told when a human must look.
        provider: Who acts; default: the name up to its first dot.
        retry: Delays between questions and requests; default: the job's.
        ssl_context: How to check the service's certificate; default: the certificates of ``certifi``.
        transport: Takes the place of the network in tests.

    Raises:
        DefinitionError: The declaration cannot work.
    """

    def __init__(
        self,
        name: str,
        method: str,
        url: Url,
        *,
        guarantees: Guarantees,
        body: Callable[..., Any] | None = None,
        headers: Callable[[], Mapping[str, str]] | None = None,
        key_header: str | None = "Idempotency-Key",
        ref_field: str | None = "id",
        refused_before: frozenset[int] = REFUSED_FOR_NOW_STATUS,
        reconcile_url: Callable[..., str] | None = None,
        read_found: Callable[[Any], Verdict | Reconciliation] | None = None,
        timeout: timedelta = DEFAULT_TIMEOUT,
        requires_key: bool = False,
        owner: str = "",
        provider: str | None = None,
        retry: RetryPolicy | None = None,
        ssl_context: SSLContext | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if guarantees.can_reconcile != (reconcile_url is not None):
            msg = f"{name}: reconcile_url is needed for, and only for, guarantees with can_reconcile=True."
            raise DefinitionError(msg)
        if guarantees.dedupe is Dedupe.KEY and not key_header:
            msg = f"{name}: dedupe='key' needs a key_header."
            raise DefinitionError(msg)
        self.name = name
        self.method = method.upper()
        self.url = url
        self.guarantees = guarantees
        self.body = body
        self.headers = headers
        self.key_header = key_header
        self.ref_field = ref_field
        self.refused_before = refused_before
        self.reconcile_url = reconcile_url
        self.read_found = read_found
        self.timeout = timeout
        self.requires_key = requires_key
        self.owner = owner
        self.provider = provider or name.partition(".")[0]
        self.retry = retry
        self._ssl_context = ssl_context
        self._transport = transport

    def __repr__(self) -> str:
        return f"<http effect {self.name}>"

    def send(self, call: EffectCall, **request: Any) -> Outcome:
        """Send the request once and say what its answer proves."""
        wire = Wire(lambda: call.remaining)
        try:
            url = self.url(**request) if callable(self.url) else self.url
            headers, known = self._headers(call)
            content = canonical(self.body(call, **request) if self.body else request).encode()
            built = httpx.Request(self.method, url, headers=headers, content=content)
        except Exception as error:  # noqa: BLE001  the caller's own functions; no byte was written
            return Rejected(f"not sent: {type(error).__name__}: {error}", permanent=False, key_is_burnt=False)
        try:
            return _without(known, self.read(*self._exchange(built, wire)))
        except BROKEN as error:
            reason = known.hidden(f"{type(error).__name__}: {error}")
            if not wire.touched and (self._transport is None or isinstance(error, UNSENT)):
                return Rejected(f"not sent: {reason}", permanent=False, key_is_burnt=False)
            return Unknown(reason)

    def read(self, response: httpx.Response, content: bytes) -> Outcome:
        """Say what an answer proves; whatever proves nothing is unknown."""
        status = response.status_code
        request_id = response.headers.get("x-request-id") or response.headers.get("request-id")
        proof = http_proof(status, refused_before=self.refused_before)
        if proof is Proof.APPLIED:
            return self._confirmed(response, content, request_id)
        reason = f"answered {status}"
        if proof is Proof.REFUSED:
            return Rejected(reason, status=status, provider_request_id=request_id)
        wish = parse_retry_after(response.headers.get("retry-after", ""), now=clock.now())
        if proof is Proof.NOTHING:
            return Unknown(reason, status=status, provider_request_id=request_id, retry_after=wish)
        return Rejected(
            reason,
            permanent=False,
            key_is_burnt=False,
            status=status,
            provider_request_id=request_id,
            retry_after=wish,
        )

    def _confirmed(self, response: httpx.Response, content: bytes, request_id: str | None) -> Outcome:
        status = response.status_code
        replayed = response.headers.get("idempotent-replayed", "").lower() == "true"
        value, readable = _json(content)
        if _is_html(response):
            reason = f"answered {status} with a web page, as a proxy would"
            return Unknown(reason, status=status, provider_request_id=request_id)
        if self.ref_field is None:
            result = value if isinstance(value, dict) else {}
            return Confirmed("", status=status, provider_request_id=request_id, replayed=replayed, result=result)
        reference = _field(value, self.ref_field)
        if not readable or reference is None:
            reason = f"answered {status} with a body that is not JSON" if not readable else f"no {self.ref_field!r}"
            return Unknown(f"{reason}; the reference is missing", status=status, provider_request_id=request_id)
        result = value if isinstance(value, dict) else {}
        return Confirmed(
            str(reference), status=status, provider_request_id=request_id, replayed=replayed, result=result
        )

    def reconcile(self, call: EffectCall, **request: Any) -> Reconciliation | Verdict:
        """Ask with a GET: 200 is read, 202 is pending, 404 is not found, anything else teaches nothing.

        A web page is no answer: a proxy or a wrong address would make every operation "not found".
        """
        if self.reconcile_url is None:
            return Verdict.UNAVAILABLE
        wire = Wire(lambda: call.remaining)
        headers, known = self._headers(call, asking=True)
        built = httpx.Request("GET", self.reconcile_url(call, **request), headers=headers)
        try:
            response, content = self._exchange(built, wire)
        except BROKEN as error:
            reason = known.hidden(f"{type(error).__name__}: {error}")
            return Reconciliation(Verdict.UNAVAILABLE, evidence={"error": reason})
        found = self._read_found(response, content)
        return _without(known, found) if isinstance(found, Reconciliation) else found

    def _read_found(self, response: httpx.Response, content: bytes) -> Reconciliation | Verdict:
        evidence = {"status": response.status_code}
        if response.status_code in {202, 404} and not _is_html(response):
            verdict = Verdict.PENDING if response.status_code == 202 else Verdict.NOT_FOUND
            return Reconciliation(verdict, evidence=evidence)
        value, readable = _json(content)
        if response.status_code != 200 or not readable:
            return Reconciliation(Verdict.UNAVAILABLE, evidence=evidence)
        if self.read_found is not None:
            return self.read_found(value)
        reference = _field(value, self.ref_field) if self.ref_field else None
        if self.ref_field and reference is None:
            return Reconciliation(Verdict.UNAVAILABLE, evidence=evidence | {"missing": self.ref_field})
        return Reconciliation(
            Verdict.SUCCEEDED, provider_ref=None if reference is None else str(reference), evidence=evidence
        )

    def _headers(self, call: EffectCall, *, asking: bool = False) -> tuple[dict[str, str], Known]:
        """Return the headers of a request, and what masks the secrets in them."""
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if not asking:
            headers["Content-Type"] = "application/json"
            if self.key_header:
                headers[self.key_header] = call.key
        own = dict(self.headers() if self.headers else {})
        return headers | own, Known(secret_headers(own), least=LEAST_SECRET)

    def _exchange(self, request: httpx.Request, wire: Wire) -> tuple[httpx.Response, bytes]:
        transport = self._transport or DeadlineTransport(wire, ssl_context=self._ssl_context)
        try:
            response = transport.handle_request(request)
            try:
                return response, _body(response, wire)
            except BROKEN:
                if http_proof(response.status_code) is Proof.APPLIED:
                    raise
                return response, b""  # the status alone says what such an answer proves
            finally:
                response.close()
        finally:
            if self._transport is None:
                transport.close()


Told = TypeVar("Told", bound=Outcome | Reconciliation)


def _without(known: Known, told: Told) -> Told:
    """Return what an answer told without the secrets of its request: some services quote what they got."""
    texts = {name: getattr(told, name, None) for name in _FOREIGN}
    changed = {name: known.hidden_in(value) for name, value in texts.items() if value}
    if reference := getattr(told, "provider_ref", None):
        changed["provider_ref"] = known.hidden_in_reference(reference)
    return replace(told, **changed)


def _body(response: httpx.Response, wire: Wire) -> bytes:
    encoding = response.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":  # a few bytes could become gigabytes
        raise httpx.DecodingError(f"the answer is encoded as {encoding}, which was not asked for")
    content = bytearray()
    for chunk in response.iter_bytes():
        content += chunk
        if wire.left() <= 0:
            raise httpx.ReadTimeout("no time left to read")
        if len(content) > ANSWER_LIMIT:
            raise httpx.ReadError(f"the answer is longer than {ANSWER_LIMIT} bytes")
    return bytes(content)


def _is_html(response: httpx.Response) -> bool:
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower() in HTML


def _json(content: bytes) -> tuple[Any, bool]:
    try:
        return json.loads(content), True
    except (ValueError, RecursionError):
        return None, False


def _field(value: Any, path: str) -> Any:
    for part in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value if isinstance(value, str | int) and not isinstance(value, bool) and value != "" else None
