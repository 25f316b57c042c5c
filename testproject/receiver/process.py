"""Starts and asks the partner as a real process, for the demo and for tests."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from typing import Any

from testproject.serving import ServerProcess


def new_secret() -> str:
    """Return a secret to sign webhooks with."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(24)).decode()


class ReceiverProcess(ServerProcess):
    """The partner; `faults` are what goes wrong with the first try of the first events, in order."""

    def __init__(self, *, secret: str, faults: Sequence[str] = (), late_seconds: float = 3.0) -> None:
        self.secret = secret
        options = ["--secret", secret, "--faults", ",".join(faults), "--late-seconds", str(late_seconds)]
        super().__init__("testproject.receiver.server", options)

    @property
    def events_url(self) -> str:
        """Where webhooks go."""
        return f"{self.url}/events"

    def report(self) -> dict[str, Any]:
        """Return what came, in order, and the events that were taken, by id."""
        return self.call("GET", "/_log")

    def go_down(self) -> None:
        """Answer every webhook with 503 from now on."""
        self.call("POST", "/_down", body={})

    def come_back(self) -> None:
        """Take webhooks again."""
        self.call("POST", "/_up", body={})
