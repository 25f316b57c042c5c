"""The client's evidence: one deadline for everything, and what it can prove about a request."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from types import SimpleNamespace

import httpx
import pytest
from django.core.exceptions import ImproperlyConfigured

from testproject.payments import client as client_module
from testproject.payments.client import LookupFailed, MaybeSent, NotSent, PaymentsClient, configured_client

CHARGE = {"order_id": 7, "amount": "12.50", "currency": "EUR", "key": "k", "operation": "j"}
SLACK = 0.5


@contextmanager
def listening(serve: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """Serve one connection with a function that owns the socket until the event is set."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                serve(connection, over)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            over.set()
            thread.join(5)


def drip(head: bytes) -> Callable[[socket.socket, threading.Event], None]:
    """Return a server that sends a head and then one byte every 50 ms for ever."""

    def serve(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(head)
        while not over.wait(0.05):
            try:
                connection.sendall(b"x")
            except OSError:
                return

    return serve


def test_silent_server_ends_at_the_deadline(provider, charge):
    """A server that never answers costs the caller its time-out and no more."""
    provider.script(7, "hold_before_apply")
    started = time.monotonic()

    with pytest.raises(MaybeSent, match="Timeout"):
        charge(timeout=0.4)

    assert 0.4 <= time.monotonic() - started < 0.4 + SLACK


@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"],
    ids=["headers", "body"],
)
def test_dripping_server_ends_at_the_deadline(head):
    """A server that keeps sending single bytes cannot stretch the deadline."""
    with listening(drip(head)) as url:
        started = time.monotonic()

        with pytest.raises(MaybeSent, match="Timeout"):
            PaymentsClient(url).charge(**CHARGE, timeout=0.4)

        assert 0.4 <= time.monotonic() - started < 0.4 + SLACK


def test_answer_cut_in_the_middle_is_maybe_sent():
    """Half an answer proves nothing."""

    def serve(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(b'HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{"id"')

    with listening(serve) as url, pytest.raises(MaybeSent):
        PaymentsClient(url).charge(**CHARGE, timeout=5)


def test_answer_too_long_is_maybe_sent():
    """An answer without end is given up at 1 MiB, long before the deadline."""

    def serve(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while not over.is_set():
                connection.sendall(b"x" * 65536)
        except OSError:
            return

    with listening(serve) as url, pytest.raises(MaybeSent, match="longer than"):
        PaymentsClient(url).charge(**CHARGE, timeout=30)


def test_refused_connection_is_not_sent():
    """A port that nobody listens on proves that nothing left."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    with pytest.raises(NotSent):
        PaymentsClient(f"http://127.0.0.1:{port}").charge(**CHARGE, timeout=5)


def test_unreachable_server_is_not_sent_at_the_deadline():
    """A connection that is never accepted proves that nothing left, within the deadline."""
    with socket.socket() as server, socket.socket() as one, socket.socket() as two:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for filler in (one, two):
            filler.setblocking(False)
            filler.connect_ex(server.getsockname())
        started = time.monotonic()

        with pytest.raises(NotSent, match="ConnectTimeout"):
            PaymentsClient(f"http://127.0.0.1:{server.getsockname()[1]}").charge(**CHARGE, timeout=0.4)

        assert 0.4 <= time.monotonic() - started < 0.4 + SLACK


def test_unknown_host_is_not_sent(monkeypatch):
    """A name without an address proves that nothing left."""

    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("django_jobs.effects.adapters.wire.socket.getaddrinfo", fail)

    with pytest.raises(NotSent, match="not known"):
        PaymentsClient("http://provider.invalid").charge(**CHARGE, timeout=5)


@pytest.mark.parametrize("timeout", [0, -1.0])
def test_no_time_left_is_not_sent(provider, charge, timeout):
    """Without time to begin nothing is sent."""
    with pytest.raises(NotSent, match="no time left"):
        charge(timeout=timeout)

    assert provider.requests() == []


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (httpx.ConnectError("refused"), NotSent),
        (httpx.ConnectTimeout("slow"), NotSent),
        (httpx.PoolTimeout("full"), NotSent),
        (httpx.WriteError("reset"), MaybeSent),
        (httpx.ReadTimeout("silent"), MaybeSent),
        (httpx.RemoteProtocolError("nonsense"), MaybeSent),
    ],
)
def test_error_of_a_given_transport_is_judged_by_its_kind(raised, expected):
    """With a transport of the caller's own, only errors from before the first byte are a proof."""

    def fail(request: httpx.Request) -> httpx.Response:
        raise raised

    with pytest.raises(expected):
        PaymentsClient("http://provider", transport=httpx.MockTransport(fail)).charge(**CHARGE, timeout=5)


def test_server_error_is_one_request(provider, charge):
    """The client never retries by itself."""
    provider.script(7, "server_error")

    assert charge().status == 500
    assert len(provider.requests(7)) == 1


def test_redirect_is_an_answer():
    """A redirect is handed to the caller and never followed."""
    seen: list[httpx.Request] = []

    def redirect(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(307, headers={"Location": "http://elsewhere/charges"})

    answer = PaymentsClient("http://provider", transport=httpx.MockTransport(redirect)).charge(**CHARGE, timeout=5)

    assert (answer.status, len(seen)) == (307, 1)


def test_proxy_of_the_environment_is_ignored(monkeypatch, provider, charge):
    """The environment cannot send a charge through a proxy."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    assert charge().status == 201


def test_same_charge_has_the_same_bytes(provider, charge):
    """A Decimal, however it is written, gives the bytes of its two-place text."""
    charge(amount="12.50")

    assert charge(amount=Decimal("12.5")).replayed


@pytest.mark.parametrize("amount", ["1.005", Decimal("NaN"), Decimal("Infinity")])
def test_amount_that_needs_rounding_is_refused(charge, amount):
    """Money is never rounded in silence."""
    with pytest.raises(ValueError, match="two places"):
        charge(amount=amount)


@pytest.mark.parametrize(
    "response",
    [httpx.Response(500, json={}), httpx.Response(200, text="no JSON"), httpx.Response(200, json={"data": 1})],
)
def test_lookup_without_a_list_fails(response):
    """An answer that is no list is an error, never "not found"."""
    client = PaymentsClient("http://provider", transport=httpx.MockTransport(lambda request: response))

    with pytest.raises(LookupFailed) as caught:
        client.find(key="k", timeout=5)

    assert caught.value.answer.status == response.status_code


def test_lookup_without_a_filter_is_refused(client):
    """A lookup has to say what it looks for."""
    with pytest.raises(ValueError, match="filter"):
        client.find(timeout=5)


def test_url_without_scheme_is_refused():
    """A base URL that cannot work is refused where it is given."""
    with pytest.raises(ValueError, match="http://"):
        PaymentsClient("127.0.0.1:8000")


def test_configured_client_prefers_the_settings(monkeypatch):
    """The settings win over the environment, and each is read at the call."""
    settings = SimpleNamespace(configured=True, PAYMENTS_URL="http://from-settings")
    monkeypatch.setattr(client_module, "settings", settings)
    monkeypatch.setenv("PAYMENTS_URL", "http://from-environment/")

    first = configured_client().base_url
    settings.PAYMENTS_URL = ""

    assert (first, configured_client().base_url) == ("http://from-settings", "http://from-environment")


def test_configured_client_without_url_names_the_mend(monkeypatch):
    """A missing URL is an error that says where to set it."""
    monkeypatch.setattr(client_module, "settings", SimpleNamespace(configured=False))
    monkeypatch.delenv("PAYMENTS_URL", raising=False)

    with pytest.raises(ImproperlyConfigured, match="Set PAYMENTS_URL"):
        configured_client()
