"""The shipped HTTP operation: what each kind of answer proves, over real sockets and against the payments provider."""

from __future__ import annotations

import socket
import threading
import time as process_time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest

from django_jobs import Confirmed, Rejected, Unknown, clock
from django_jobs.domain.effects import Dedupe, Guarantees, Reconciliation, Verdict
from django_jobs.effects.adapters.http import HttpJson
from django_jobs.effects.call import EffectCall
from django_jobs.exceptions import DefinitionError, EffectUncertain
from testproject.payments.process import ProviderProcess
from tests.integration.effects.factories import MovableClock, act, after_waiting, running

KEYED = Guarantees(dedupe=Dedupe.KEY, key_lifetime=timedelta(hours=24))
ASKABLE = Guarantees(dedupe=Dedupe.KEY, key_lifetime=timedelta(hours=24), can_reconcile=True)
NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def a_call(seconds: float = 5.0, *, number: int = 1) -> EffectCall:
    """A call with so many seconds left."""
    return EffectCall(
        key="key-7",
        operation_id="job-7",
        effect_name="charge",
        business_key="order:7",
        send_number=number,
        first_sent_at=NOW,
        deadline=NOW,
        ends_at=clock.boot_seconds() + seconds,
    )


def answering(status: int, *, body: bytes = b'{"id": "x_1"}', headers: dict[str, str] | None = None) -> HttpJson:
    """An operation whose service answers so."""
    transport = httpx.MockTransport(lambda request: httpx.Response(status, content=body, headers=headers))
    return HttpJson("crm.create", "POST", "http://crm.test/contacts", guarantees=KEYED, transport=transport)


@contextmanager
def raw_server(reply: Any) -> Iterator[str]:
    """A socket that takes one connection and gives it to ``reply``."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                reply(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        thread.join(timeout=10)


def test_request_carries_key_body_and_headers() -> None:
    """The request is canonical JSON with the key in its header; headers are made when it is sent."""
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(201, json={"data": {"id": 9}}, headers={"X-Request-Id": "req_1"})

    operation = HttpJson(
        "crm.create",
        "post",
        lambda name, **rest: f"http://crm.test/contacts/{name}",
        guarantees=KEYED,
        headers=lambda: {"Authorization": "Bearer secret"},
        ref_field="data.id",
        transport=httpx.MockTransport(handle),
    )

    outcome = operation.send(a_call(), name="ann", age=3)

    assert outcome == Confirmed("9", status=201, provider_request_id="req_1", result={"data": {"id": 9}})
    request = seen[0]
    assert (request.method, str(request.url), request.content) == (
        "POST",
        "http://crm.test/contacts/ann",
        b'{"age":3,"name":"ann"}',
    )
    assert (request.headers["idempotency-key"], request.headers["authorization"]) == ("key-7", "Bearer secret")


@pytest.mark.parametrize("echo", ["Bearer s3cr3t/token", "s3cr3t/token", "s3cr3t%2ftoken", "czNjcjN0L3Rva2Vu"])
def test_echo_of_a_credential_is_masked(echo: str) -> None:
    """A service that quotes the authorization gets it neither into the receipt nor into a reason; other data stays."""
    body = {"id": f"ref {echo}", "got": [echo, {"account": "acct_12345678"}]}

    def handle(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json=body)
        if request.url.path == "/broken":
            raise httpx.ReadError(f"after {echo}")
        return httpx.Response(201, json=body, headers={"X-Request-Id": echo})

    def operation(path: str = "") -> HttpJson:
        return HttpJson(
            "crm.create", "post", f"http://crm.test/{path}",
            guarantees=ASKABLE,
            reconcile_url=lambda call: "http://crm.test/find",
            headers=lambda: {"Authorization": "Bearer s3cr3t/token", "X-Account": "acct_12345678"},
            transport=httpx.MockTransport(handle),
        )  # fmt: skip

    confirmed, broken = operation().send(a_call()), operation("broken").send(a_call())
    found = operation().reconcile(a_call())

    assert isinstance(confirmed, Confirmed)
    assert (confirmed.provider_ref, confirmed.provider_request_id) == ("ref [redacted]", "[redacted]")
    assert confirmed.result == {"id": "ref [redacted]", "got": ["[redacted]", {"account": "acct_12345678"}]}
    assert broken == Unknown("ReadError: after [redacted]")
    assert isinstance(found, Reconciliation)
    assert found.provider_ref == "ref [redacted]"


@pytest.mark.parametrize(
    ("credential", "reference"),
    [
        ({"Authorization": 'Digest username="shop-main", realm="payments", response="0123abcd"'}, "shop-main-17"),
        ({"Authorization": 'Digest username="shop-main", realm="payments", response="0123abcd"'}, "Payments/17"),
        ({"Cookie": "tenant=shop-eu; session=abcdef123"}, "shop-eu-17"),
    ],
)
def test_reference_stays_what_the_provider_calls_it(credential: dict[str, str], reference: str) -> None:
    """A refund names the charge by it: a user, a realm or a tenant in a credential does not change it."""
    operation = HttpJson(
        "crm.create", "post", "http://crm.test/",
        guarantees=ASKABLE,
        reconcile_url=lambda call: "http://crm.test/find",
        headers=lambda: credential,
        transport=httpx.MockTransport(lambda request: httpx.Response(200, json={"id": reference})),
    )  # fmt: skip

    confirmed, found = operation.send(a_call()), operation.reconcile(a_call())

    assert isinstance(confirmed, Confirmed)
    assert isinstance(found, Reconciliation)
    assert (confirmed.provider_ref, found.provider_ref) == (reference, reference)


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 410, 422])
def test_definitive_4xx_is_a_permanent_rejection(status: int) -> None:
    """An answer that proves that nothing was applied, and that asking again cannot help."""
    outcome = answering(status).send(a_call())

    assert outcome == Rejected(f"answered {status}", status=status)
    assert isinstance(outcome, Rejected)
    assert outcome.permanent


@pytest.mark.parametrize("status", [301, 304, 307, 308, 406, 408, 409, 418, 423, 424, 499, 500, 502, 503, 504, 599])
def test_answer_that_proves_nothing_is_unknown(status: int) -> None:
    """Redirects are not followed, and conflicts and server errors prove nothing."""
    outcome = answering(status, headers={"Location": "http://elsewhere.test/"}).send(a_call())

    assert outcome == Unknown(f"answered {status}", status=status)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"id": null}', b'{"id": {}}', b'{"id": ""}', b'{"id": true}', b"[" * 100_000]
)
def test_success_without_a_reference_is_unknown(body: bytes) -> None:
    """A 200 that cannot be read, or names nothing, is no receipt."""
    assert isinstance(answering(200, body=body).send(a_call()), Unknown)


def test_success_without_a_body_is_enough_where_nothing_is_named() -> None:
    """With ref_field=None a 204 is a receipt."""
    operation = answering(204, body=b"")
    operation.ref_field = None

    assert operation.send(a_call()) == Confirmed("", status=204)


@pytest.mark.parametrize(
    ("header", "wish"),
    [
        ("7", timedelta(seconds=7)),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), timedelta(seconds=90)),
        (format_datetime(NOW - timedelta(seconds=90), usegmt=True), timedelta(0)),
        ("soon", None),
        ("", None),
        ("-5", None),
        ("7, 9", timedelta(seconds=9)),
    ],
)
def test_f20_rate_limit_is_a_transient_rejection_with_its_wish(header: str, wish: timedelta | None) -> None:
    """429: not applied; Retry-After is read as seconds or as a date, and nonsense is no wish."""
    with clock.override(lambda: NOW):
        outcome = answering(429, headers={"Retry-After": header}).send(a_call())

    assert outcome == Rejected("answered 429", permanent=False, key_is_burnt=False, status=429, retry_after=wish)


def test_retry_after_of_a_busy_service_is_kept_beside_an_unclear_outcome() -> None:
    """503 proves nothing, but it may say when to ask again; a header that was sent twice means the longer time."""
    transport = httpx.MockTransport(
        lambda request: httpx.Response(503, headers=[("Retry-After", "5"), ("Retry-After", "120")])
    )
    operation = HttpJson("crm.create", "POST", "http://crm.test/", guarantees=KEYED, transport=transport)

    assert operation.send(a_call()) == Unknown("answered 503", status=503, retry_after=timedelta(seconds=120))


def test_statuses_before_anything_runs_are_the_services_to_say() -> None:
    """A service that answers 503 before it begins may be believed, and one that counts 429 as an outcome may not."""
    operation = answering(503)
    operation.refused_before = frozenset({503})
    assert isinstance(operation.send(a_call()), Rejected)
    operation = answering(429)
    operation.refused_before = frozenset()
    assert isinstance(operation.send(a_call()), Unknown)


@pytest.mark.parametrize("status", [200, 404])
def test_web_page_is_no_answer(status: int) -> None:
    """A login page, a proxy's notice or a wrong address: no receipt, and no proof that nothing was found."""
    page = {"Content-Type": "text/html; charset=utf-8"}
    operation = answering(status, body=b"<html>", headers=page)
    operation.ref_field = None
    operation.reconcile_url = lambda call: "http://crm.test/found"

    assert isinstance(operation.send(a_call()), Unknown if status == 200 else Rejected)
    found = operation.reconcile(a_call())
    assert isinstance(found, Reconciliation)
    assert found.verdict is Verdict.UNAVAILABLE


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
REFUSAL = b"HTTP/1.1 422 No\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\nff\r\n"
ENDLESS = b"Content-Length: 99999999\r\n\r\n"


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        pytest.param(b"SSH-2.0-OpenSSH\r\n", Unknown, id="another protocol"),
        pytest.param(b"HTTP/1.1 200", Unknown, id="cut in the status line"),
        pytest.param(OK + b"X-Long: " + b"x" * 200_000 + b"\r\n\r\n", Unknown, id="endless header"),
        pytest.param(OK + b"Content-Length: nonsense\r\n\r\n{}", Unknown, id="nonsense length"),
        pytest.param(OK + CHUNKED + b'{"id": "x_1"}', Unknown, id="chunk cut short"),
        pytest.param(OK + b'Content-Length: 50\r\n\r\n{"id": "x_1"}', Unknown, id="body cut short"),
        pytest.param(OK + ENDLESS + b" " * 2_000_000, Unknown, id="oversized"),
        pytest.param(OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", Unknown, id="encoded"),
        pytest.param(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", Unknown, id="switching protocols"),
        pytest.param(
            b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b'Content-Length: 13\r\n\r\n{"id": "x_1"}', Confirmed, id="continue"
        ),
        pytest.param(
            b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK + b'Content-Length: 13\r\n\r\n{"id": "x_1"}', Confirmed, id="hints"
        ),
        pytest.param(REFUSAL + CHUNKED + b"{", Rejected, id="refusal with a broken body"),
        pytest.param(REFUSAL + ENDLESS + b" " * 2_000_000, Rejected, id="refusal with an endless body"),
        pytest.param(b"HTTP/1.1 503 Busy\r\nRetry-After: 5\r\n" + CHUNKED, Unknown, id="busy with a broken body"),
    ],
)
def test_malformed_answer_over_a_real_socket(reply: bytes, expected: type) -> None:
    """What cannot be read is unclear, except that a status which proves a refusal proves it without its body."""

    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        with suppress(OSError):
            connection.sendall(reply)

    with raw_server(answer) as url:
        outcome = HttpJson("crm.create", "POST", url, guarantees=KEYED).send(a_call())

    assert isinstance(outcome, expected), outcome


def test_replayed_answer_says_so() -> None:
    """The service answered from its memory of the key."""
    outcome = answering(200, headers={"Idempotent-Replayed": "true"}).send(a_call())

    assert isinstance(outcome, Confirmed)
    assert outcome.replayed


def test_refused_connection_is_known_not_sent() -> None:
    """Nobody listens: no byte left."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    operation = HttpJson("crm.create", "POST", f"http://127.0.0.1:{port}/", guarantees=KEYED)

    outcome = operation.send(a_call(), name="ann")

    assert isinstance(outcome, Rejected)
    assert (outcome.permanent, outcome.key_is_burnt) == (False, False)
    assert outcome.reason.startswith("not sent")


def test_function_that_fails_before_the_request_is_known_not_sent() -> None:
    """A missing secret is found out before a byte is written."""
    operation = HttpJson("crm.create", "POST", "http://crm.test/", guarantees=KEYED, headers=lambda: {}["token"])  # type: ignore[arg-type,return-value]

    outcome = operation.send(a_call())

    assert isinstance(outcome, Rejected)
    assert not outcome.permanent


def test_no_time_left_is_known_not_sent() -> None:
    """The deadline has passed before the connection was made."""
    operation = HttpJson("crm.create", "POST", "http://127.0.0.1:9/", guarantees=KEYED)

    assert isinstance(operation.send(a_call(0.0)), Rejected)


def test_reset_after_the_request_is_unknown() -> None:
    """The service took the request and closed without a word."""
    with raw_server(lambda connection: connection.recv(65536)) as url:
        outcome = HttpJson("crm.create", "POST", url, guarantees=KEYED).send(a_call())

    assert isinstance(outcome, Unknown)


def test_dribbling_answer_ends_at_the_total_deadline() -> None:
    """A byte now and then does not prolong the call: its time-out is one for all."""
    stop = threading.Event()

    def dribble(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while not stop.wait(0.05):
            try:
                connection.sendall(b"x")
            except OSError:
                return

    started = process_time.monotonic()
    try:
        with raw_server(dribble) as url:
            outcome = HttpJson("crm.create", "POST", url, guarantees=KEYED).send(a_call(0.5))
            stop.set()
    finally:
        stop.set()

    assert isinstance(outcome, Unknown)
    assert 0.4 < process_time.monotonic() - started < 3


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy variable sends no request elsewhere."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{"id": "x_1"}')

    with raw_server(answer) as url:
        outcome = HttpJson("crm.create", "POST", url, guarantees=KEYED).send(a_call())

    assert isinstance(outcome, Confirmed)


@pytest.mark.parametrize(
    ("status", "body", "verdict"),
    [
        (200, b'{"id": "x_1"}', Verdict.SUCCEEDED),
        (202, b"", Verdict.PENDING),
        (404, b"", Verdict.NOT_FOUND),
        (500, b"", Verdict.UNAVAILABLE),
        (200, b"<html>", Verdict.UNAVAILABLE),
        (200, b"[]", Verdict.UNAVAILABLE),
        (200, b'{"data": []}', Verdict.UNAVAILABLE),
        (200, b"null", Verdict.UNAVAILABLE),
    ],
)
def test_question_reads_the_status(status: int, body: bytes, verdict: Verdict) -> None:
    """200 with the reference is found, 202 pending, 404 not found; anything else, an empty search too, teaches nothing."""
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(status, content=body)

    operation = HttpJson(
        "crm.create",
        "POST",
        "http://crm.test/contacts",
        guarantees=ASKABLE,
        reconcile_url=lambda call, **request: f"http://crm.test/contacts?operation={call.operation_id}",
        transport=httpx.MockTransport(handle),
    )

    found = operation.reconcile(a_call())

    assert isinstance(found, Reconciliation)
    assert found.verdict is verdict
    assert (seen[0].method, seen[0].url.query) == ("GET", b"operation=job-7")
    assert found.provider_ref == ("x_1" if verdict is Verdict.SUCCEEDED else None)


def test_question_that_breaks_teaches_nothing() -> None:
    """No address, no connection or an answer read by the project's own function: each says what it knows."""
    assert answering(200).reconcile(a_call()) is Verdict.UNAVAILABLE
    operation = HttpJson(
        "crm.create",
        "POST",
        "http://127.0.0.1:9/",
        guarantees=ASKABLE,
        reconcile_url=lambda call: "http://127.0.0.1:9/",
    )
    found = operation.reconcile(a_call(0.0))
    assert isinstance(found, Reconciliation)
    assert found.verdict is Verdict.UNAVAILABLE
    operation = answering(200)
    operation.reconcile_url = lambda call: "http://crm.test/found"
    operation.read_found = lambda value: Verdict.FAILED if value["id"] == "x_1" else Verdict.SUCCEEDED
    operation.key_header = None
    assert operation.reconcile(a_call()) is Verdict.FAILED
    assert isinstance(operation.send(a_call()), Confirmed)
    assert "crm.create" in repr(operation)


@pytest.mark.parametrize(
    "wrong",
    [
        {"guarantees": ASKABLE},
        {"guarantees": KEYED, "reconcile_url": lambda call: "http://crm.test/"},
        {"guarantees": KEYED, "key_header": None},
    ],
)
def test_declaration_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    """A question without an address, an address without a promise, and a key without a header are refused."""
    with pytest.raises(DefinitionError, match=r"crm\.create"):
        HttpJson("crm.create", "POST", "http://crm.test/", **wrong)


@pytest.mark.django_db(transaction=True)
def test_http_effect_is_applied_once_over_a_lost_response(time: MovableClock, provider: ProviderProcess) -> None:
    """The real provider: a lost response, the next attempt repeats the key, and the order is charged once."""
    provider.script(7, "drop_response")
    operation = HttpJson(
        "payments.http",
        "POST",
        f"{provider.url}/charges",
        guarantees=KEYED,
        body=lambda call, **request: {**request, "operation": call.operation_id},
    )
    body = {"order_id": 7, "amount": "12.50", "currency": "EUR"}
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, operation, **body)

    receipt = act(after_waiting(first), operation, **body)

    assert receipt.replayed
    assert provider.applied(7) == 1
    assert receipt.result["operation"] == str(first.job_id)
