"""The provider as a process: it starts anywhere, keeps its ledger through kill -9, and never outlives its starter."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from testproject.payments.client import MaybeSent, NotSent, PaymentsClient
from testproject.payments.process import ProviderProcess
from testproject.serving import PROJECT_ROOT, ServerError

STARTER = """
import pathlib, signal, sys
from testproject.payments.process import ProviderProcess
with ProviderProcess(ledger=pathlib.Path(sys.argv[1])) as provider:
    print(provider.url, flush=True)
    signal.pause()
"""


@pytest.fixture
def own_provider(tmp_path):
    """Return a provider of this test's own, with its ledger in a known file."""
    with ProviderProcess(ledger=tmp_path / "ledger.db") as provider:
        yield provider


def send(provider, **changes):
    """Charge order 7 with its usual key."""
    usual = {"order_id": 7, "amount": "12.50", "currency": "EUR", "key": "key-7", "operation": "job-7", "timeout": 5.0}
    return PaymentsClient(provider.url).charge(**(usual | changes))


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_ledger_outlives_the_process(own_provider, end):
    """After SIGTERM and after SIGKILL the same port answers from the same ledger."""
    url, first = own_provider.url, send(own_provider)

    getattr(own_provider, end)()
    own_provider.start()

    second = send(own_provider)
    assert own_provider.url == url
    assert (second.replayed, second.json) == (True, first.json)
    assert own_provider.applied(7) == 1
    assert [request["replayed"] for request in own_provider.requests(7)] == [False, True]


def test_kill_after_apply_keeps_charge_and_key(own_provider, background):
    """A provider killed between the charge and its answer knows both afterwards."""
    own_provider.script(7, "hold_after_apply")
    pending = background(send, own_provider)
    own_provider.wait_kind(7, "held")

    own_provider.kill()
    own_provider.start()

    assert isinstance(pending.exception(5), MaybeSent)
    assert send(own_provider).replayed
    assert own_provider.applied(7) == 1


def test_kill_before_apply_leaves_the_key_free(own_provider, background):
    """A provider killed before the charge has not applied it, and its key is not in progress for ever."""
    own_provider.script(7, "hold_before_apply")
    pending = background(send, own_provider)
    own_provider.wait_kind(7, "held")

    own_provider.kill()
    own_provider.start()

    assert isinstance(pending.exception(5), MaybeSent)
    assert own_provider.applied(7) == 0
    assert send(own_provider).status == 201


def test_stop_ends_held_requests_without_applying(own_provider, background):
    """SIGTERM does not wait for held requests and does not apply them."""
    own_provider.script(7, "hold_before_apply")
    pending = background(send, own_provider)
    own_provider.wait_kind(7, "held")

    own_provider.restart()

    assert isinstance(pending.exception(5), MaybeSent)
    assert own_provider.applied(7) == 0


def test_stopped_provider_refuses_connections(own_provider):
    """A provider that is down proves to its callers that nothing was sent."""
    own_provider.stop()

    with pytest.raises(NotSent):
        send(own_provider)


def test_provider_ends_with_its_starter(tmp_path):
    """A provider whose starter was killed with SIGKILL goes too."""
    environment = os.environ | {"PYTHONPATH": str(PROJECT_ROOT)}
    command = [sys.executable, "-c", STARTER, str(tmp_path / "ledger.db")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as starter:
        port = int(starter.stdout.readline().decode().rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as witness:
            starter.send_signal(signal.SIGKILL)

            try:
                last = witness.recv(1)
            except ConnectionResetError:  # the server went before it had accepted the connection
                last = b""
            assert last == b""


def test_provider_starts_from_any_directory(tmp_path, monkeypatch):
    """The working directory and a missing PYTHONPATH do not matter."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)

    with ProviderProcess() as provider:
        assert send(provider).status == 201


def test_provider_that_cannot_start_says_so(tmp_path, capfd):
    """A taken port is an error with its reason on the error output, not a hang."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        provider = ProviderProcess(ledger=tmp_path / "ledger.db", port=taken.getsockname()[1])

        with pytest.raises(ServerError, match="ended before it listened"):
            provider.start()

    assert "Address already in use" in capfd.readouterr().err


def test_second_start_is_refused(own_provider):
    """One object steers one process."""
    with pytest.raises(ServerError, match="running already"):
        own_provider.start()


def test_server_imports_no_django():
    """The provider knows nothing of the project that it serves."""
    code = "import sys, testproject.payments.server; print('django' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(PROJECT_ROOT)}

    shown = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=30, check=True)

    assert shown.stdout.strip() == b"False"


def test_wait_for_ends_with_what_was_seen(provider, charge):
    """A wait that fails shows the last events, so that the test log tells what happened instead."""
    charge()

    with pytest.raises(TimeoutError, match="answered"):
        provider.wait_for(lambda event: event["kind"] == "refunded", 0.1)


def test_wait_for_begins_behind_an_event(provider, charge):
    """`after` leaves out what was seen already."""
    charge(key=None)
    first = provider.wait_kind(7, "applied")
    charge(key=None)

    second = provider.wait_kind(7, "applied", after=first["seq"])

    assert (first["applied_for_order"], second["applied_for_order"]) == (1, 2)


def test_long_poll_answers_at_the_event(provider, charge, background):
    """A waiting poll is woken by the event and not by its own end."""
    waiting = background(provider.wait_kind, 7, "applied", 30.0)

    charge()

    assert waiting.result(4)["order_id"] == 7
