"""
The partner as a process of its own: `python -m testproject.receiver.server --port 0 --secret whsec_…`.

It prints one line, `listening on http://127.0.0.1:PORT`, and serves until SIGTERM, SIGINT or the end of its standard
input. `POST /events` takes a webhook; `GET /_log` tells what came and what became of it. The first tries of the first
events go wrong, as scripted by `--faults`: it answers 500, it takes the event and answers too late, or it takes it and
hangs up, so that the sender has to send it twice. It takes each event once, whatever comes.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from testproject.listening import LocalServer, serve

BODY_LIMIT = 256 * 1024
TOLERANCE = 300  # seconds
FAULTS = ("fail", "late", "hang-up")


@dataclass(slots=True, kw_only=True)
class Book:
    """What came, in order, and which events were taken; one lock, because connections have threads of their own."""

    faults: list[str]
    late_seconds: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    log: list[dict[str, Any]] = field(default_factory=list)
    taken: dict[str, str] = field(default_factory=dict)
    scripted: dict[str, str] = field(default_factory=dict)
    down: bool = False

    def receive(self, event_id: str, body: str) -> str:
        """Note one delivery and return what is done with it: a fault, `taken`, `again` or `down`."""
        with self.lock:
            if self.down:
                self.log.append({"id": event_id, "did": "down"})
                return "down"
            fault = ""
            if event_id not in self.scripted:
                self.scripted[event_id] = fault = self.faults.pop(0) if self.faults else ""
            if fault != "fail":
                again = event_id in self.taken
                self.taken.setdefault(event_id, body)
            did = fault or ("again" if again else "taken")
            self.log.append({"id": event_id, "did": did, "type": json.loads(body).get("type")})
            return did

    def report(self) -> dict[str, Any]:
        """Return the log and the taken events by id."""
        with self.lock:
            return {"log": list(self.log), "taken": {key: json.loads(body) for key, body in self.taken.items()}}


class Server(LocalServer):
    """The partner: a book behind HTTP, and the key that senders sign with."""

    def __init__(self, *, port: int, secret: str, book: Book) -> None:
        self.key = base64.b64decode(secret.removeprefix("whsec_"))
        self.book = book
        super().__init__(Handler, port=port)


class Handler(BaseHTTPRequestHandler):
    """Takes webhooks; written without the package, as a partner's own code would be."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 60
    wbufsize = -1
    disable_nagle_algorithm = True

    def handle(self) -> None:
        """Serve the connection; a client that went away is no error."""
        with suppress(ConnectionError, TimeoutError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class names it so
        """Print nothing: the book holds every delivery."""

    def do_GET(self) -> None:
        """Tell what came."""
        if self.path == "/_log":
            self._answer(200, self.server.book.report())
        else:
            self._answer(404, {"error": "there is nothing here"})

    def do_POST(self) -> None:
        """Take a webhook, or a control request of the demo."""
        body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), BODY_LIMIT))
        if self.path in {"/_down", "/_up"}:
            self.server.book.down = self.path == "/_down"
            self._answer(200, {})
        elif self.path != "/events":
            self._answer(404, {"error": "there is nothing here"})
        elif not self._is_signed(body):
            self._answer(401, {"error": "the signature does not fit"})
        else:
            self._take(body)

    def _take(self, body: bytes) -> None:
        did = self.server.book.receive(self.headers["webhook-id"], body.decode())
        if did in {"fail", "down"}:
            self._answer(500 if did == "fail" else 503, {"error": "out of order"})
        elif did == "hang-up":
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
        else:
            if did == "late":
                time.sleep(self.server.book.late_seconds)
            self._answer(200, {"taken": did})

    def _is_signed(self, body: bytes) -> bool:
        number, when = self.headers.get("webhook-id", ""), self.headers.get("webhook-timestamp", "")
        if not when.isdigit() or abs(time.time() - int(when)) > TOLERANCE:
            return False
        mine = hmac.new(self.server.key, f"{number}.{when}.".encode() + body, hashlib.sha256).digest()
        given = [text.removeprefix("v1,") for text in self.headers.get("webhook-signature", "").split()]
        return any(hmac.compare_digest(base64.b64encode(mine).decode(), text) for text in given)

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        self.wfile.flush()


def main(argv: list[str] | None = None) -> int:
    """Serve until told to stop; return the exit status."""
    parser = argparse.ArgumentParser(prog="testproject.receiver.server", description="A partner that takes webhooks.")
    parser.add_argument("--port", type=int, default=0, help="TCP port on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--secret", required=True, help="what the sender signs with")
    parser.add_argument("--faults", default="", help=f"for the first events, in order: {', '.join(FAULTS)}, or empty")
    parser.add_argument("--late-seconds", type=float, default=3.0, help="how late a late answer comes")
    parser.add_argument("--stop-with-stdin", action="store_true", help="stop at the end of standard input")
    options = parser.parse_args(argv)
    book = Book(faults=options.faults.split(",") if options.faults else [], late_seconds=options.late_seconds)
    server = Server(port=options.port, secret=options.secret, book=book)
    serve(server, stop_with_stdin=options.stop_with_stdin)
    return 0


if __name__ == "__main__":
    sys.exit(main())
