"""Starts, steers and watches the payments provider as a real process, for the demo and for tests."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

PROJECT_ROOT = Path(__file__).resolve().parents[2]
CONTROL_SECONDS = 10.0
STOP_SECONDS = 5.0
READY = "listening on "


class ProviderError(Exception):
    """The provider did not start, or refused a control request; the message says why."""


class ProviderProcess:
    """
    The provider in a process and session of its own; use it as a context manager.

    Without `ledger` the ledger lives in a temporary directory that goes at the end. The provider also ends when the
    process that started it dies, however that happens.
    """

    def __init__(self, *, ledger: Path | None = None, port: int = 0, start_timeout: float = 15.0) -> None:
        self._temporary = None if ledger else Path(tempfile.mkdtemp(prefix="payments-"))
        self._ledger = ledger.resolve() if ledger else Path(str(self._temporary)) / "ledger.db"
        self._port = port
        self._start_timeout = start_timeout
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._tidy()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self._tidy()

    @property
    def url(self) -> str:
        """The base URL; it stays the same over restarts."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The process id of the running provider."""
        if self._process is None:
            raise ProviderError("The provider is not running: call start() first.")
        return self._process.pid

    def start(self) -> None:
        """Start the provider and wait until it listens; ProviderError after `start_timeout` seconds."""
        if self._process is not None:
            raise ProviderError("The provider is running already.")
        arguments = ["--port", str(self._port), "--ledger", str(self._ledger), "--stop-with-stdin"]
        paths = [str(PROJECT_ROOT), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "testproject.payments.server", *arguments],
            cwd=PROJECT_ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in the demo's terminal is for the demo, which then stops the provider
        )
        try:
            line = _first_line(self._process, seconds=self._start_timeout)
            self._port = int(line.removeprefix(READY).rpartition(":")[2])
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End the provider with SIGTERM (SIGKILL if that takes more than 5 s); nothing happens if it is down."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap()

    def kill(self) -> None:
        """End the provider with SIGKILL and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def restart(self) -> None:
        """Start again with the same port and ledger, after a stop if it runs; scripted faults are forgotten."""
        self.stop()
        self.start()

    def script(self, order_id: int, fault: str, times: int = 1, seconds: float | None = None) -> None:
        """Let the next `times` requests of an order take a fault (the names are in `faults.FaultName`)."""
        body = {"order_id": order_id, "fault": fault, "times": times, "seconds": seconds}
        self._call("POST", "/_control/faults", body=body)

    def release(self, order_id: int) -> int:
        """Let the held requests of an order go on and return how many there were."""
        return int(self._call("POST", "/_control/release", body={"order_id": order_id})["released"])

    def reset(self) -> None:
        """Empty the ledger and the script; requests that are under way end without an answer and apply nothing."""
        self._call("POST", "/_control/reset", body={})

    def ledger(self) -> dict[str, Any]:
        """Return charges, declined, refunds, applied_per_order, requests and faults_pending."""
        return self._call("GET", "/_ledger")

    def applied(self, order_id: int) -> int:
        """Return how many charges the provider applied for an order."""
        return int(self.ledger()["applied_per_order"].get(str(order_id), 0))

    def requests(self, order_id: int | None = None) -> list[dict[str, Any]]:
        """Return the request log, oldest first, of one order or of all."""
        requests: list[dict[str, Any]] = self.ledger()["requests"]
        return [request for request in requests if order_id is None or request["order_id"] == order_id]

    def events(self, *, after: int = 0, seconds: float = 0.0) -> list[dict[str, Any]]:
        """Return the events behind sequence number `after`, waiting up to `seconds` (at most 5) for the first."""
        query = urlencode({"after": after, "seconds": seconds})
        events: list[dict[str, Any]] = self._call("GET", f"/_events?{query}")["events"]
        return events

    def wait_for(
        self, predicate: Callable[[dict[str, Any]], bool], timeout: float, *, after: int = 0
    ) -> dict[str, Any]:
        """
        Return the first event behind `after` that fits; TimeoutError after `timeout` seconds.

        An event has seq, n (the request), kind, method, path, order_id, key, fault, status and applied_for_order.
        Kinds: arrived, fault, held, applied, declined, answered, dropped, late_done, late_refused. `fault` and
        `status` show the request as it is now.
        """
        deadline = time.monotonic() + timeout
        seen: list[dict[str, Any]] = []
        while True:
            left = deadline - time.monotonic()
            for event in self.events(after=after, seconds=max(left, 0.0)):
                if predicate(event):
                    return event
                seen.append(event)
                after = event["seq"]
            if left <= 0:
                raise TimeoutError(f"No such event within {timeout:g} s; the last ones were {seen[-5:]}.")

    def wait_kind(self, order_id: int, kind: str, timeout: float = 5.0, *, after: int = 0) -> dict[str, Any]:
        """Return the first event of a kind for an order, for example `wait_kind(7, "applied")`."""
        return self.wait_for(
            lambda event: bool(event["order_id"] == order_id and event["kind"] == kind), timeout, after=after
        )

    def _call(self, method: str, path: str, *, body: dict[str, Any] | None = None) -> dict[str, Any]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=CONTROL_SECONDS)
        try:
            connection.request(method, path, body=None if body is None else json.dumps(body))
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        finally:
            connection.close()
        if response.status != 200:
            raise ProviderError(f"{method} {path} was refused: {answer['error']['message']}")
        return answer

    def _reap(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.wait(STOP_SECONDS)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _tidy(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


def _first_line(process: subprocess.Popen[bytes], *, seconds: float) -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + seconds
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not selector.select(max(deadline - time.monotonic(), 0.0)):
                raise ProviderError(f"The provider did not listen within {seconds:g} s.")
            chunk = os.read(process.stdout.fileno(), 1024)
            if not chunk:
                raise ProviderError("The provider ended before it listened; its error output says why.")
            line += chunk
    return line.decode().strip()
