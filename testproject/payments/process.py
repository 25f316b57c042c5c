"""Starts, steers and watches the payments provider as a real process, for the demo and for tests."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from testproject.serving import ServerProcess


class ProviderProcess(ServerProcess):
    """
    The provider in a process and session of its own; use it as a context manager.

    Without `ledger` the ledger lives in a temporary directory that goes at the end. A restart keeps the ledger and
    forgets scripted faults.
    """

    def __init__(self, *, ledger: Path | None = None, port: int = 0, start_timeout: float = 15.0) -> None:
        self._temporary = None if ledger else Path(tempfile.mkdtemp(prefix="payments-"))
        file = ledger.resolve() if ledger else Path(str(self._temporary)) / "ledger.db"
        super().__init__("testproject.payments.server", ["--ledger", str(file)], port=port, start_timeout=start_timeout)

    def tidy(self) -> None:
        """Remove a temporary ledger."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def script(self, order_id: int, fault: str, times: int = 1, seconds: float | None = None) -> None:
        """Let the next `times` requests of an order take a fault (the names are in `faults.FaultName`)."""
        body = {"order_id": order_id, "fault": fault, "times": times, "seconds": seconds}
        self.call("POST", "/_control/faults", body=body)

    def release(self, order_id: int) -> int:
        """Let the held requests of an order go on and return how many there were."""
        return int(self.call("POST", "/_control/release", body={"order_id": order_id})["released"])

    def reset(self) -> None:
        """Empty the ledger and the script; requests that are under way end without an answer and apply nothing."""
        self.call("POST", "/_control/reset", body={})

    def ledger(self) -> dict[str, Any]:
        """Return charges, declined, refunds, applied_per_order, requests and faults_pending."""
        return self.call("GET", "/_ledger")

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
        events: list[dict[str, Any]] = self.call("GET", f"/_events?{query}")["events"]
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
