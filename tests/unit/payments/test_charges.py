"""The provider's rules about keys, bodies, declined cards, refunds and lookups."""

from __future__ import annotations

import threading
from collections import Counter

import httpx
import pytest

GOOD = {"order_id": 7, "amount": "12.50", "currency": "EUR", "operation": "job-7"}


def post(provider, path="/charges", **options):
    """Send a raw request, past the client's own checks."""
    return httpx.post(provider.url + path, trust_env=False, timeout=5, **options)


def test_first_charge_is_applied(provider, charge):
    """A charge is applied and answered with 201, its id and a request id."""
    answer = charge()

    assert answer.status == 201
    assert answer.json["id"].startswith("ch_")
    assert (answer.json["status"], answer.json["order_id"]) == ("succeeded", 7)
    assert answer.request_id.startswith("req_")
    assert not answer.replayed
    assert provider.applied(7) == 1


def test_same_key_and_body_replays_the_answer(provider, charge):
    """A repeated request gets the first answer with 200 and moves no money."""
    first = charge()

    second = charge()

    assert (second.status, second.replayed, second.json) == (200, True, first.json)
    assert second.request_id != first.request_id
    assert provider.applied(7) == 1


def test_same_key_and_other_body_is_refused(provider, charge):
    """A key belongs to the bytes that used it first."""
    charge()

    answer = charge(amount="12.51")

    assert (answer.status, answer.json["error"]["code"]) == (422, "idempotency_key_reused")
    assert provider.applied(7) == 1


def test_same_key_for_a_refund_is_refused(provider, client, charge):
    """A key belongs to the path that used it first."""
    charged = charge()

    answer = client.refund(charge=charged.json["id"], key="key-7", timeout=5)

    assert (answer.status, answer.json["error"]["code"]) == (422, "idempotency_key_reused")
    assert provider.ledger()["refunds"] == []


def test_same_key_while_the_first_is_under_way_is_refused(provider, charge, background):
    """A key in progress answers 409, and replays once the first request is through."""
    provider.script(7, "hold_before_apply")
    first = background(charge)
    provider.wait_kind(7, "held")

    second = charge()
    provider.release(7)

    assert (second.status, second.json["error"]["code"]) == (409, "idempotency_key_in_progress")
    assert first.result(5).status == 201
    assert charge().replayed
    assert provider.applied(7) == 1


def test_charges_without_key_are_each_applied(provider, charge):
    """Without a key a repeated request charges twice, and the ledger shows it."""
    ids = {charge(key=None).json["id"] for _ in range(2)}

    assert len(ids) == 2
    assert provider.applied(7) == 2


def test_one_key_from_twenty_threads_is_applied_once(provider, charge, background):
    """However many send one key at the same moment, one charge is applied and nobody sees another answer."""
    barrier = threading.Barrier(20)

    def send():
        barrier.wait(5)
        return charge()

    answers = [future.result(10) for future in [background(send) for _ in range(20)]]

    statuses = Counter(answer.status for answer in answers)
    assert statuses[201] == 1
    assert statuses[200] + statuses[409] == 19
    assert len({answer.json["id"] for answer in answers if answer.status != 409}) == 1
    assert provider.applied(7) == 1


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"order_id": 0}, "invalid_order_id"),
        ({"order_id": "7"}, "invalid_order_id"),
        ({"order_id": True}, "invalid_order_id"),
        ({"order_id": 2**63}, "invalid_order_id"),
        ({"amount": 12.5}, "invalid_amount"),
        ({"amount": "12.5"}, "invalid_amount"),
        ({"amount": "0.00"}, "invalid_amount"),
        ({"amount": "-1.00"}, "invalid_amount"),
        ({"currency": "eur"}, "invalid_currency"),
        ({"operation": ""}, "invalid_operation"),
        ({"operation": None}, "invalid_operation"),
        ({"tip": "1.00"}, "unknown_field"),
    ],
)
def test_wrong_field_is_refused(provider, changes, code):
    """A field that does not fit is refused with 422 and a code that names it; the key stays free."""
    refused = post(provider, json=GOOD | changes, headers={"Idempotency-Key": "k"})

    assert (refused.status_code, refused.json()["error"]["code"]) == (422, code)
    assert provider.ledger()["charges"] == []
    assert post(provider, json=GOOD, headers={"Idempotency-Key": "k"}).status_code == 201


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 50_000])
def test_body_that_is_no_object_is_refused(provider, body):
    """A body that is no JSON object is refused with 400."""
    refused = post(provider, content=body)

    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_json")


@pytest.mark.parametrize("key", ["", "a b", "k" * 256])
def test_malformed_key_is_refused(provider, key):
    """A key that is empty, too long or holds blanks is refused with 400."""
    refused = post(provider, json=GOOD, headers={"Idempotency-Key": key})

    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_idempotency_key")


def test_body_too_large_is_refused(provider):
    """A body above 64 KiB is refused before it is read."""
    refused = post(provider, content=b"x" * (64 * 1024 + 1))

    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "body_too_large")


def test_unknown_path_is_refused(provider):
    """A path that nobody serves answers 404."""
    assert post(provider, path="/payouts", json={}).status_code == 404
    assert httpx.get(provider.url + "/payouts", trust_env=False).status_code == 404


def test_health_answers(provider):
    """The health question is answered with 200."""
    assert httpx.get(provider.url + "/healthz", trust_env=False).json() == {"status": "ok"}


def test_refund_follows_the_rules_of_keys(provider, client, charge):
    """A refund is applied once per key and shown on its charge."""
    charged = charge().json["id"]

    first = client.refund(charge=charged, key="refund-7", operation="job-8", timeout=5)
    second = client.refund(charge=charged, key="refund-7", operation="job-8", timeout=5)

    assert (first.status, second.status, second.replayed) == (201, 200, True)
    assert first.json["charge"] == charged
    assert first.json == second.json
    assert len(provider.ledger()["refunds"]) == 1
    assert client.find(key="key-7", timeout=5)[0]["refunded"]
    assert client.find_refunds(charge=charged, timeout=5) == [first.json]


def test_refunds_without_key_are_each_applied(provider, client, charge):
    """Without a key a repeated refund pays twice, and the ledger shows it."""
    charged = charge().json["id"]

    statuses = [client.refund(charge=charged, key=None, timeout=5).status for _ in range(2)]

    assert statuses == [201, 201]
    assert len(provider.ledger()["refunds"]) == 2


def test_refund_of_an_unknown_charge_is_refused(client):
    """A charge that does not exist cannot be refunded."""
    answer = client.refund(charge="ch_none", key="k", timeout=5)

    assert (answer.status, answer.json["error"]["code"]) == (404, "no_such_charge")


def test_refund_of_a_declined_charge_is_refused(provider, client, charge):
    """What was never taken cannot be given back."""
    provider.script(7, "declined")
    charged = charge().json["error"]["charge"]

    answer = client.refund(charge=charged, key="k", timeout=5)

    assert (answer.status, answer.json["error"]["code"]) == (422, "charge_not_succeeded")


def test_lookup_finds_by_each_filter(client, charge):
    """A charge is found by its order, its operation and its key, and by nothing else."""
    made = charge().json | {"refunded": False}
    charge(order_id=8, key="key-8", operation="job-8")

    assert client.find(order_id=7, timeout=5) == [made]
    assert client.find(operation="job-7", timeout=5) == [made]
    assert client.find(key="key-7", timeout=5) == [made]
    assert client.find(key="key-8", order_id=7, timeout=5) == []
    assert client.find(order_id=9, timeout=5) == []


@pytest.mark.parametrize("query", ["", "?color=red", "?order_id=x", "?order_id=-1", "?operation=j&color=red"])
def test_lookup_with_a_wrong_filter_is_refused(provider, query):
    """A lookup that asks for everything or for nonsense is refused, never answered with an empty list."""
    refused = httpx.get(provider.url + "/charges" + query, trust_env=False)

    assert refused.status_code in {400, 422}
    assert "error" in refused.json()


def test_request_log_holds_what_was_sent(provider, charge):
    """The ledger holds the key and the digest of each request, so that a resend can be proved byte-equal."""
    charge()
    charge()

    first, second = provider.requests(7)
    assert (first["key"], second["key"]) == ("key-7", "key-7")
    assert first["body_sha256"] == second["body_sha256"]
    assert (first["applied"], first["status"], first["replayed"]) == (True, 201, False)
    assert (second["applied"], second["status"], second["replayed"]) == (False, 200, True)
    assert second["n"] > first["n"]
