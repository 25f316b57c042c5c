"""The webhook publisher over real sockets: what is sent, what answers mean, one deadline, and where it may go."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_jobs import clock, verify_webhook
from django_jobs.domain.events import Confirmed, Error, Nacked, Report, Returned, Timeout
from django_jobs.exceptions import DefinitionError
from django_jobs.outbox.publishers import wire
from django_jobs.outbox.publishers.webhook import Webhook
from django_jobs.outbox.signing import new_secret
from tests.parcels import DATA, parcel
from tests.receivers import Receiver, answer, at_home, drip, hang_up, raw, silence, trusting, webhook
from tests.scenes import NOON

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
QUICK = timedelta(milliseconds=400)


def post(receiver: Receiver, behaviour: Any = None, *, seconds: float = 20.0, **options: Any) -> Report:
    """Publish one event to a receiver that behaves so; returns the report."""
    if behaviour is not None:
        receiver.behaviour = behaviour
    publisher = webhook(receiver, **options)
    try:
        (report,) = publisher.publish_batch([parcel()], seconds=seconds)
    finally:
        publisher.close()
    return report


def test_request_is_a_signed_cloud_event() -> None:
    """Every receiver can check it with the secret alone: body, headers and signature belong together."""
    sent, secrets = parcel(subject="order:7"), [new_secret(), SECRET]
    with Receiver("hooks") as receiver, clock.override(lambda: NOON):
        publisher = webhook(receiver, secrets=secrets, headers=lambda: {"Authorization": "Bearer t"})
        (report,) = publisher.publish_batch([sent], seconds=20)
        publisher.close()

        (request,) = receiver.requests
        assert request.line == "POST /in?tenant=1 HTTP/1.1"
        for secret in secrets:
            assert verify_webhook(request.headers, request.body, secrets=secret) == str(sent.event.id)
    assert isinstance(report, Confirmed)
    assert receiver.names == ["hooks.example"]
    headers = request.headers
    assert headers["content-type"] == "application/cloudevents+json"
    assert headers["host"] == f"hooks.example:{receiver.port}"
    assert (headers["authorization"], headers["webhook-timestamp"]) == ("Bearer t", str(int(NOON.timestamp())))
    document = json.loads(request.body)
    assert (document["type"], document["subject"], document["id"]) == (
        "shop.order.paid.v1",
        "order:7",
        str(sent.event.id),
    )
    assert request.body.endswith(f',"data":{DATA}}}'.encode())


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, Confirmed) for status in (200, 201, 202, 204, 299)),
        *((status, Returned) for status in (404, 405, 410)),
        *((status, Nacked) for status in (400, 401, 403, 406, 409, 413, 415, 418, 422, 431, 451, 499)),
        *(
            (status, Error)
            for status in (301, 302, 304, 307, 308, 407, 408, 421, 423, 425, 429, 500, 501, 503, 504, 599)
        ),
    ],
)
def test_status_says_whom_it_speaks_against(status: int, kind: type[Report]) -> None:
    """A 2xx confirms, most 4xx are about the event, everything else about the destination."""
    with Receiver() as receiver:
        report = post(receiver, answer(status, headers={"Location": "http://elsewhere.example/"}))

    assert isinstance(report, kind)
    assert report.status == status  # type: ignore[union-attr]
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    ("header", "wish"),
    [("7", timedelta(seconds=7)), ("Mon, 04 May 2026 12:00:30 GMT", timedelta(seconds=30)), ("soon", None), ("", None)],
)
def test_wish_to_come_back_later_is_told(header: str, wish: timedelta | None) -> None:
    """Retry-After in seconds or as a date; nonsense is no wish."""
    with Receiver() as receiver, clock.override(lambda: NOON):
        report = post(receiver, answer(429, headers={"Retry-After": header}))

    assert isinstance(report, Error)
    assert report.retry_after == wish


@pytest.mark.parametrize(
    ("reply", "receipt"),
    [
        (answer(200, headers={"X-Request-Id": "req_1"}), "req_1"),
        (answer(200, headers={"Request-Id": "req_2"}), "req_2"),
        (answer(200, body=b'{"id": "evt_9"}'), "evt_9"),
        (answer(200, body=b'{"id": 9}'), ""),
        (answer(200, body=b"[]"), ""),
        (answer(200, body=b"<html>"), ""),
        (answer(200, body=b"\xff"), ""),
        (answer(200, body=b"[" * 60_000), ""),
        (answer(200, headers={"X-Request-Id": "x" * 1000}), "x" * 255),
        (answer(200, headers={"X-Request-Id": f"a\x1b[2J{SECRET}"}), "a [2J[redacted]"),
    ],
)
def test_receipt_is_what_the_receiver_calls_it(reply: Any, receipt: str) -> None:
    """It is short and printable, and an echo of the secret is masked."""
    with Receiver() as receiver:
        report = post(receiver, reply)

    assert report == Confirmed(receipt, 200)


def test_connection_is_kept_for_a_batch() -> None:
    """Ten events, one connection, one look-up of the name; a closed publisher opens another."""
    looked_up: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        looked_up.append(host)
        return at_home(host, port)

    with Receiver("hooks") as receiver:
        publisher = webhook(receiver, resolve=resolve)
        reports = publisher.publish_batch([parcel() for _ in range(10)], seconds=20)
        assert (receiver.connections, looked_up) == (1, ["hooks.example"])
        publisher.close()
        reports += publisher.publish_batch([parcel()], seconds=20)
        publisher.close()

    assert all(isinstance(report, Confirmed) for report in reports)
    assert receiver.connections == 2


def test_kept_connection_that_the_receiver_closed_is_replaced() -> None:
    """A receiver that closes after each answer costs a connection, not an event."""

    def answer_and_close(receiver: Receiver, connection: Any) -> bool:
        answer(204, headers={"Connection": "keep-alive"})(receiver, connection)
        return False

    with Receiver() as receiver:
        receiver.behaviour = answer_and_close
        publisher = webhook(receiver)
        reports = []
        for _ in range(3):
            reports += publisher.publish_batch([parcel()], seconds=20)
            _wait_until_closed(publisher)
        publisher.close()

    assert all(isinstance(report, Confirmed) for report in reports)
    assert receiver.connections == 3


def _wait_until_closed(publisher: Any) -> None:
    """Wait until the client can see that the other side has closed."""
    ends_at = time.monotonic() + 10
    while time.monotonic() < ends_at and not all(kept.has_expired() for kept in publisher._line._pool.connections):
        threading.Event().wait(0.005)


@pytest.mark.parametrize(
    "behaviour",
    [silence, drip(b""), drip(b"HTTP/1.1 20"), drip(b"HTTP/1.1 200 OK\r\nX-Slow: ")],
    ids=["silence", "first", "status", "header"],
)
def test_slow_answer_ends_at_the_deadline(behaviour: Any) -> None:
    """No phase begins the time anew: a receiver that sends a byte now and then is as late as one that sends none."""
    with Receiver() as receiver:
        started = time.monotonic()
        report = post(receiver, behaviour, timeout=QUICK)
        took = time.monotonic() - started

    assert isinstance(report, Timeout)
    assert "it may have arrived" in report.reason
    assert 0.3 < took < 3


@pytest.mark.parametrize("status", [200, 500])
def test_status_counts_when_only_the_body_is_slow(status: int) -> None:
    """The answer is known before its body is; an endless or huge body is cut."""
    head = f"HTTP/1.1 {status} Told\r\nContent-Length: 9999999\r\n\r\n".encode()
    with Receiver() as receiver:
        slow = post(receiver, drip(head), timeout=QUICK)
        huge = post(receiver, raw(head + b"x" * 300_000))

    assert isinstance(slow, Confirmed if status == 200 else Error)
    assert isinstance(huge, Confirmed if status == 200 else Error)


def test_answer_is_read_up_to_its_limit_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver cannot fill the memory of a dispatcher."""
    read: list[int] = []
    cut = wire._start_of
    monkeypatch.setattr(wire, "_start_of", lambda response: read.append(len(body := cut(response))) or body)

    with Receiver() as receiver:
        report = post(receiver, answer(200, body=b'{"id":"' + b"x" * 1_000_000 + b'"}'))

    assert report == Confirmed("", 200)
    assert read == [64 * 1024]


def test_receiver_that_reads_slowly_ends_at_the_deadline() -> None:
    """Writing has the same deadline: the client's own loop would begin its time with each piece."""
    with Receiver() as receiver:
        stopped = threading.Event()
        receiver._serve = lambda connection, number: stopped.wait(20)  # type: ignore[method-assign]
        publisher = webhook(receiver, timeout=QUICK)
        started = time.monotonic()
        (report,) = publisher.publish_batch([parcel(data_text='"' + "x" * 30_000_000 + '"')], seconds=20)
        took = time.monotonic() - started
        stopped.set()
        publisher.close()

    assert isinstance(report, Timeout)
    assert took < 5


def test_look_up_that_hangs_ends_at_the_deadline_and_is_not_piled_up() -> None:
    """A name server that never answers holds one thread, however many events wait."""
    release, begun = threading.Event(), []

    def resolve(host: str, port: int) -> list[str]:
        begun.append(host)
        release.wait(20)
        return at_home(host, port)

    with Receiver() as receiver:
        publisher = webhook(receiver, resolve=resolve, timeout=QUICK)
        reports = publisher.publish_batch([parcel() for _ in range(5)], seconds=20)
        assert [type(report) for report in reports] == [Error] * 5
        assert "no time left to look the name up" in reports[0].reason
        assert "still hangs" in reports[4].reason
        assert len(begun) == 1
        release.set()
        publisher._line._looking_up.join(10)
        assert isinstance(publisher.publish_batch([parcel()], seconds=20)[0], Confirmed)
        publisher.close()


@pytest.mark.parametrize(
    ("behaviour", "kind", "told"),
    [
        (hang_up, Timeout, "closed the connection unanswered; it may have arrived"),
        (raw(b"HTTP/1.1 20"), Timeout, "may have arrived"),
        (raw(b"SSH-2.0-OpenSSH\r\n\r\n"), Error, "cannot be read; it may have arrived"),
        (raw(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), Error, "cannot be read; it may have arrived"),
        (raw(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000), Error, "cannot be read; it may have arrived"),
    ],
)
def test_broken_exchange_is_told_as_what_it_is(behaviour: Any, kind: type[Report], told: str) -> None:
    """From the first byte on the event may have arrived, and the report says so."""
    with Receiver() as receiver:
        report = post(receiver, behaviour)

    assert isinstance(report, kind)
    assert told in report.reason  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "found",
    [
        ["10.0.0.1"],
        ["127.0.0.1"],
        ["169.254.169.254"],
        ["93.184.216.34", "10.0.0.1"],
        ["::1"],
        ["::ffff:127.0.0.1"],
        ["garbage"],
    ],
)
def test_name_with_an_address_inside_is_refused(found: list[str]) -> None:
    """Also when only one of its addresses is, and before anything is connected to."""
    with Receiver() as receiver:
        report = post(receiver, resolve=lambda host, port: found, allow_private=False)

    assert isinstance(report, Error)
    assert "is not public" in report.reason
    assert receiver.connections == 0


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "017700000001", "localhost", "[::1]", "[::ffff:127.0.0.1]"],
)
def test_this_machine_by_any_other_name_is_refused(host: str) -> None:
    """However the system spells an address, what it looks up to is what counts."""
    with Receiver() as receiver:
        publisher = Webhook(f"http://{host}:{receiver.port}/", secrets=SECRET, allow_http=True, ports=[receiver.port])
        (report,) = publisher.publish_batch([parcel()], seconds=20)
        publisher.close()

    assert isinstance(report, Error)
    assert "not sent" in report.reason
    assert receiver.connections == 0


def test_name_that_changes_its_address_is_connected_to_where_it_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second look-up could say another address: there is none, and each new connection is checked anew."""
    answers = [["127.0.0.1"], ["10.0.0.1"]]
    monkeypatch.setattr(wire, "is_public", lambda address: address == "127.0.0.1")  # this machine plays the Internet

    with Receiver() as receiver:
        publisher = webhook(receiver, resolve=lambda host, port: answers.pop(0), allow_private=False)
        (first,) = publisher.publish_batch([parcel()], seconds=20)
        publisher.close()
        (second,) = publisher.publish_batch([parcel()], seconds=20)
        publisher.close()

    assert isinstance(first, Confirmed)
    assert isinstance(second, Error)
    assert "10.0.0.1 is not public" in second.reason
    assert (receiver.connections, answers) == (1, [])


def test_address_that_refuses_is_followed_by_the_next() -> None:
    """A name with several addresses is tried in their order."""
    with Receiver() as receiver:
        report = post(receiver, resolve=lambda host, port: ["127.0.0.2", "127.0.0.1"])

    assert isinstance(report, Confirmed)


def test_certificate_must_be_of_the_name_and_of_a_known_authority() -> None:
    """The connection goes to an address, and the certificate is still checked against the name."""
    with Receiver("hooks") as receiver:
        unknown = post(receiver, ssl_context=None)
    with Receiver("other") as receiver:
        foreign = post(receiver, ssl_context=trusting())
    with Receiver() as receiver:
        publisher = Webhook(
            f"https://hooks.example:{receiver.port}/",
            secrets=SECRET, allow_private=True, ports=[receiver.port], resolve=at_home, timeout=QUICK,
        )  # fmt: skip
        (plain,) = publisher.publish_batch([parcel()], seconds=20)
        publisher.close()

    for report in (unknown, foreign, plain):
        assert isinstance(report, Error)
        assert "not sent" in report.reason
    assert "hooks.example" in foreign.reason  # type: ignore[union-attr]
    assert receiver.requests == []


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the shell of the worker says does not decide where signed events go."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")

    with Receiver() as receiver:
        assert isinstance(post(receiver), Confirmed)


BASIC = "Basic c2hvcDpwYS9zcyB3MHJk"  # shop:pa/ss w0rd


@pytest.mark.parametrize("by_function", [False, True])
@pytest.mark.parametrize(
    "echo",
    [
        SECRET,
        SECRET.removeprefix("whsec_"),
        BASIC,
        BASIC.removeprefix("Basic "),
        "shop:pa/ss w0rd",
        "pa/ss w0rd",
        "pa%2Fss%20w0rd",
        "tok_12345",
        "/in?tenant=1&access=q1w2e3r4",
        "q1w2e3r4",
    ],
)
def test_echo_of_a_secret_is_masked_in_every_form(echo: str, by_function: bool) -> None:
    """A receiver that quotes what it got, in its id or in an answer that is no HTTP, gets no secret into our rows."""
    headers = {"Authorization": BASIC, "X-Partner": "Token tok_12345"}
    options: dict[str, Any] = {
        "headers": (lambda: headers) if by_function else headers,
        "secrets": (lambda: iter([SECRET])) if by_function else SECRET,
        "path": "/in?tenant=1&access=q1w2e3r4",
    }
    with Receiver("hooks") as receiver:
        report = post(receiver, answer(200, headers={"X-Request-Id": f"got {echo}!"}), **options)
        assert report == Confirmed("got [redacted]!", 200)
        report = post(receiver, answer(200, body=json.dumps({"id": f"got {echo}!"}).encode()), **options)
        assert report == Confirmed("got [redacted]!", 200)
        report = post(receiver, raw(f"HTTP/1.1 {echo}\r\n\r\n".encode()), **options)

    assert isinstance(report, Error)
    assert echo not in report.reason


@pytest.mark.parametrize("fails", ["secrets", "headers"])
def test_functions_of_the_project_that_fail_send_nothing(fails: str) -> None:
    """A dispatcher goes on, and what the error says (a secret, perhaps) is not told."""

    def broken() -> Any:
        raise KeyError("whsec_canary")

    with Receiver() as receiver:
        report = post(receiver, **{fails: broken})

    assert report == Error("not sent: headers or secrets could not be made: KeyError")
    assert receiver.requests == []


def test_secret_can_change_without_a_restart() -> None:
    """A function is asked for each request."""
    secrets = [new_secret(), new_secret()]
    now = datetime.now(UTC)
    with Receiver() as receiver:
        publisher = webhook(receiver, secrets=lambda: secrets[len(receiver.requests)])
        publisher.publish_batch([parcel(), parcel()], seconds=20)
        publisher.close()

        for request, secret in zip(receiver.requests, secrets, strict=True):
            assert verify_webhook(request.headers, request.body, secrets=secret, now=now)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"secrets": []}, "no webhook secret"),
        ({"secrets": "whsec_"}, "0 bytes"),
        ({"headers": {"Webhook-Id": "1"}}, "sets itself"),
        ({"headers": {"content-type": "text/plain"}}, "sets itself"),
        ({"headers": {"X Y": "1"}}, "no header name"),
        ({"headers": {"X": "a\r\nWebhook-Id: 1"}}, "not printable ASCII"),
        ({"headers": {"X": "ä"}}, "not printable ASCII"),
        ({"timeout": timedelta(0)}, "timeout"),
        ({"timeout": 5}, "timeout"),
        ({"ports": [80]}, "allowed are 80"),
    ],
)
def test_option_that_cannot_work_is_refused_at_once(options: dict[str, Any], why: str) -> None:
    """When the settings are read, not when the first event is due."""
    with pytest.raises(DefinitionError, match=why):
        Webhook("https://hooks.example/", **{"secrets": SECRET, **options})
