"""The fake provider: each scripted answer, providers without keys, and the provider as an HTTP server."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from django_jobs.testing import Answer, FakeDownstream, JobsClock, MalformedAnswerError


@pytest.fixture
def moved() -> Iterator[JobsClock]:
    """The clock in force."""
    with JobsClock() as clock:
        yield clock


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize(
    ("script", "error"),
    [("timeout", TimeoutError), ("reset", ConnectionResetError), ("malformed", MalformedAnswerError)],
)
def test_no_good_answer_comes(script: str, error: type[Exception], applied: bool) -> None:
    """A time-out, a reset and a page instead of JSON say nothing about whether it was applied."""
    downstream = FakeDownstream()
    getattr(downstream.on("charge"), script)(applied=applied)

    with pytest.raises(error):
        downstream.send("charge", key="k", body={"amount": 1})

    assert len(downstream.applied("charge")) == applied
    assert downstream.send("charge", key="k", body={"amount": 1}).replayed == applied


def test_statuses_are_scripted() -> None:
    """Too many requests with its wish, an error for now, and a refusal for good that the key remembers."""
    downstream = FakeDownstream()
    script = downstream.on("charge").rate_limited(retry_after=timedelta(seconds=7)).then.unavailable(status=500)
    script.then.declined("no", status=422)

    answers = [downstream.send("charge", key="k") for _ in range(4)]

    assert [answer.status for answer in answers] == [429, 500, 422, 422]
    assert answers[0].retry_after == timedelta(seconds=7)
    assert answers[3].replayed
    assert not downstream.ledger


def test_a_slow_answer_moves_the_clock(moved: JobsClock) -> None:
    """The caller's time goes by while it waits."""
    downstream = FakeDownstream(now=moved.now)
    downstream.on("charge").slow(after=timedelta(minutes=1))
    before = moved.now()

    assert downstream.send("charge").ok
    assert moved.now() - before >= timedelta(minutes=1)


def test_a_provider_without_keys_applies_each_request() -> None:
    """A key is a reference there: it can be asked for, and keeps nothing from happening twice."""
    downstream = FakeDownstream(keys=False)

    downstream.send("charge", key="order:7", body={"amount": 1})
    assert downstream.find("charge", key="order:7").ok
    downstream.send("charge", key="order:7", body={"amount": 1})

    assert len(downstream.applied("charge", key="order:7")) == 2
    with pytest.raises(AssertionError, match="Applied more than once: charge under order:7"):
        downstream.assert_each_applied_once()


def test_a_provider_that_cannot_be_asked() -> None:
    """Without lookups nobody finds out; the question is kept all the same."""
    downstream = FakeDownstream(keys=False, lookup=False)
    downstream.send("charge", key="k")

    assert downstream.find("charge", key="k").status == 501
    assert [call.key for call in downstream.lookups] == ["k"]


def test_calls_are_chosen() -> None:
    """Calls are a list, and by operation and key those of one."""
    downstream = FakeDownstream()
    for operation, key in (("charge", "a"), ("mail", "a"), ("charge", "b")):
        downstream.send(operation, key=key)

    assert (len(downstream.calls), len(downstream.calls("charge")), len(downstream.calls("charge", key="b"))) == (
        3,
        2,
        1,
    )


def test_what_was_kept_comes_back() -> None:
    """Ledger, keys and scripts are as before the block."""
    downstream = FakeDownstream()
    downstream.on("charge").declined("no")
    downstream.send("mail", key="k", body={"to": "ada"})

    with downstream.kept():
        assert not downstream.send("charge", key="c").ok
        downstream.forget_keys()
        downstream.send("mail", key="k", body={"to": "eve"})

    assert len(downstream.ledger) == len(downstream.calls) == 1
    assert downstream.send("mail", key="k", body={"to": "ada"}).replayed
    assert downstream.send("charge", key="c").status == 402


def ask(url: str, method: str, path: str, body: str = "", **headers: str) -> tuple[int, str, dict[str, str]]:
    """Make one request."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        connection.request(method, path, body=body, headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode(), dict(response.getheaders())
    finally:
        connection.close()


def test_the_server_answers_as_the_provider() -> None:
    """POST takes a request with its key, GET asks, and odd requests are refused."""
    downstream = FakeDownstream()
    downstream.on("charge").rate_limited(retry_after=timedelta(seconds=7)).then.malformed(applied=False)
    key = {"Idempotency-Key": "k"}

    with downstream.as_http_server() as server:
        limited = ask(server.url, "POST", "/v1/charge", '{"amount": 1}', **key)
        page = ask(server.url, "POST", "/v1/charge", '{"amount": 1}', **key)
        taken = ask(server.url, "POST", "/v1/charge", '{"amount": 1}', **key)
        again = ask(server.url, "POST", "/v1/charge", '{"amount": 1}', **key)
        found = ask(server.url, "GET", "/v1/charge/k")
        odd = ask(server.url, "POST", "/v1/charge", "[]")
        nowhere = ask(server.url, "GET", "/")

    assert (limited[0], limited[2]["Retry-After"]) == (429, "7")
    assert page[1].startswith("<html>")
    assert (taken[0], json.loads(taken[1])) == (200, {"id": "charge_1"})
    assert again[2]["Idempotent-Replayed"] == "true"
    assert json.loads(found[1])["id"] == "charge_1"
    assert (odd[0], nowhere[0]) == (400, 404)


def test_the_server_ends_what_gets_no_answer() -> None:
    """A reset closes the connection; a request that is held ends with the server."""
    downstream = FakeDownstream()
    downstream.on("charge").reset(applied=True)

    with downstream.as_http_server() as server, pytest.raises(http.client.HTTPException):
        ask(server.url, "POST", "/charge", "{}")

    assert len(downstream.applied("charge")) == 1


@pytest.mark.parametrize(("script", "error"), [("timeout", httpx.ReadTimeout), ("reset", httpx.ReadError)])
def test_the_transport_fails_as_a_network(script: str, error: type[Exception]) -> None:
    """What gets no answer is what httpx makes of it."""
    downstream = FakeDownstream()
    getattr(downstream.on("charge"), script)(applied=True)

    with httpx.Client(transport=downstream.transport()) as client, pytest.raises(error):
        client.post("https://bank.example/charge", json={})


def test_the_transport_passes_pages_and_wishes() -> None:
    """A page is no JSON, and a wish to come later is a header."""
    downstream = FakeDownstream()
    downstream.on("charge").malformed(applied=True).then.rate_limited(retry_after=timedelta(seconds=7))

    with httpx.Client(transport=downstream.transport()) as client:
        page: Any = client.post("https://bank.example/charge", json={})
        limited = client.post("https://bank.example/charge", json={})

    assert page.text.startswith("<html>")
    assert (limited.status_code, limited.headers["Retry-After"]) == (429, "7")


def test_answers_compare() -> None:
    """An answer is equal to one that says the same."""
    assert Answer(200, {"id": "a"}) == Answer(200, {"id": "a"})
