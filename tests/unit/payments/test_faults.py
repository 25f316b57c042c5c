"""Each scripted fault: what the caller sees, and whether the money moved."""

from __future__ import annotations

import time

import pytest

from testproject.payments.client import MaybeSent
from testproject.payments.faults import FaultName
from testproject.serving import ServerError


def test_dropped_response_is_applied(provider, charge):
    """The charge is applied, the caller gets no answer, and the same key brings it."""
    provider.script(7, "drop_response")

    with pytest.raises(MaybeSent):
        charge()

    assert provider.applied(7) == 1
    assert charge().replayed


def test_dropped_request_is_not_applied(provider, charge):
    """The caller gets no answer and nothing is applied; the same key then charges."""
    provider.script(7, "drop_request")

    with pytest.raises(MaybeSent):
        charge()

    assert provider.applied(7) == 0
    assert charge().status == 201


def test_hold_before_apply_waits_for_the_release(provider, charge, background):
    """Nothing is applied until the order is released."""
    provider.script(7, "hold_before_apply")
    pending = background(charge)
    provider.wait_kind(7, "held")
    before = provider.applied(7)

    released = provider.release(7)

    assert (before, released) == (0, 1)
    assert pending.result(5).status == 201
    assert provider.applied(7) == 1


def test_hold_after_apply_waits_for_the_release(provider, charge, background):
    """The charge is applied while the caller still waits for its answer."""
    provider.script(7, "hold_after_apply")
    pending = background(charge)
    provider.wait_kind(7, "applied")
    held = provider.wait_kind(7, "held")

    assert not pending.done()
    assert held["applied_for_order"] == 1
    provider.release(7)
    assert pending.result(5).status == 201


@pytest.mark.parametrize("fault", ["hold_before_apply", "hold_after_apply"])
def test_hold_ends_by_itself_after_its_seconds(provider, charge, fault):
    """A hold with `seconds` needs no release."""
    provider.script(7, fault, seconds=0.1)
    started = time.monotonic()

    answer = charge()

    assert answer.status == 201
    assert time.monotonic() - started >= 0.1


def test_hold_before_apply_applies_after_the_caller_left(provider, charge):
    """A request whose caller gave up is applied all the same when its hold ends."""
    provider.script(7, "hold_before_apply")
    with pytest.raises(MaybeSent):
        charge(timeout=0.2)
    before = provider.applied(7)

    provider.release(7)

    assert before == 0
    assert provider.wait_kind(7, "applied")["applied_for_order"] == 1


def test_rate_limited_is_not_applied(provider, charge):
    """429 comes with Retry-After in whole seconds, as often as scripted, and leaves the key free."""
    provider.script(7, "rate_limited", times=2, seconds=3)

    limited = [charge() for _ in range(2)]

    assert [(answer.status, answer.headers["retry-after"]) for answer in limited] == [(429, "3")] * 2
    assert provider.applied(7) == 0
    assert charge().status == 201


def test_server_error_is_not_applied(provider, charge):
    """500 without a charge leaves the key free."""
    provider.script(7, "server_error")

    assert charge().status == 500
    assert provider.applied(7) == 0
    assert charge().status == 201


def test_server_error_applied_is_applied(provider, charge):
    """500 hides a charge that was applied; the same key brings its answer."""
    provider.script(7, "server_error_applied")

    assert charge().status == 500
    assert provider.applied(7) == 1
    assert charge().replayed


def test_declined_card_is_recorded_and_replayed(provider, client, charge):
    """402 is remembered for its key, moves no money and can be looked up; another key is judged anew."""
    provider.script(7, "declined")

    first, second = charge(), charge()

    assert (first.status, first.json["error"]["code"], first.replayed) == (402, "card_declined", False)
    assert (second.status, second.json, second.replayed) == (402, first.json, True)
    assert provider.applied(7) == 0
    assert provider.wait_kind(7, "declined")["applied_for_order"] == 0
    assert [found["status"] for found in client.find(key="key-7", timeout=5)] == ["declined"]
    assert [declined["order_id"] for declined in provider.ledger()["declined"]] == [7]
    assert charge(key="key-7-again").status == 201


def test_malformed_answer_is_applied(provider, charge):
    """200 with a body that is no JSON hides a charge that was applied."""
    provider.script(7, "malformed")

    answer = charge()

    assert (answer.status, answer.json) == (200, None)
    assert answer.text.startswith("<html>")
    assert provider.applied(7) == 1


def test_late_request_is_applied_after_the_socket_closed(provider, charge):
    """The caller's socket closes at once; the charge comes later, on its own or when released."""
    provider.script(7, "late", seconds=30)
    with pytest.raises(MaybeSent):
        charge()
    provider.wait_kind(7, "held")
    before = provider.applied(7)

    provider.release(7)
    provider.wait_kind(7, "late_done")

    assert (before, provider.applied(7)) == (0, 1)
    assert charge().replayed


def test_late_request_applies_after_its_seconds(provider, charge):
    """A late charge needs no release."""
    provider.script(7, "late", seconds=0.1)
    with pytest.raises(MaybeSent):
        charge()

    assert provider.wait_kind(7, "applied")["applied_for_order"] == 1


def test_late_request_with_a_used_key_applies_nothing(provider, charge):
    """A resend overtakes the late request; the key then stops the late one."""
    provider.script(7, "late", seconds=30)
    with pytest.raises(MaybeSent):
        charge()
    provider.wait_kind(7, "held")

    resent = charge()
    provider.release(7)
    provider.wait_kind(7, "late_done")

    assert resent.status == 201
    assert provider.applied(7) == 1


def test_late_request_without_key_charges_twice(provider, charge):
    """Without a key a resend and the late request are two charges."""
    provider.script(7, "late", seconds=30)
    with pytest.raises(MaybeSent):
        charge(key=None)
    provider.wait_kind(7, "held")

    charge(key=None)
    provider.release(7)
    provider.wait_kind(7, "late_done")

    assert provider.applied(7) == 2


def test_faults_are_taken_in_order_and_by_their_order_only(provider, charge):
    """First scripted is first taken, by the order it was scripted for; the ledger tells which are left."""
    provider.script(7, "rate_limited")
    provider.script(7, "server_error", times=2)

    statuses = [charge(order_id=8, key="key-8").status, charge().status, charge().status]

    assert statuses == [201, 429, 500]
    assert provider.ledger()["faults_pending"] == {"7": ["server_error"]}
    assert [request["fault"] for request in provider.requests(7)] == ["rate_limited", "server_error"]
    assert [request["fault"] for request in provider.requests(8)] == [None]


def test_fault_hits_a_refund_of_the_order(provider, client, charge):
    """A refund takes the fault of its charge's order."""
    charged = charge().json["id"]
    provider.script(7, "drop_response")

    with pytest.raises(MaybeSent):
        client.refund(charge=charged, key="refund-7", timeout=5)

    assert len(provider.ledger()["refunds"]) == 1


def test_unknown_fault_is_refused(provider):
    """A misspelled fault is an error that lists the names, never a test that tests nothing."""
    with pytest.raises(ServerError, match=", ".join(FaultName)):
        provider.script(7, "drop_respones")


@pytest.mark.parametrize(("times", "seconds"), [(0, None), (True, None), (1, -1.0), (1, 1e9), (1, True)])
def test_script_out_of_bounds_is_refused(provider, times, seconds):
    """Counts and seconds that make no sense are refused."""
    with pytest.raises(ServerError, match="has to be"):
        provider.script(7, "late", times=times, seconds=seconds)


def test_reset_ends_held_requests_without_applying(provider, charge, background):
    """What a test left behind neither answers nor applies after a reset, and its key is free again."""
    provider.script(7, "hold_before_apply")
    pending = background(charge)
    provider.wait_kind(7, "held")

    provider.reset()

    assert isinstance(pending.exception(5), MaybeSent)
    assert provider.ledger()["requests"] == []
    assert charge().status == 201
