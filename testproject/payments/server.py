"""
The payments provider as a process of its own: `python -m testproject.payments.server --port 0 --ledger FILE`.

It prints one line, `listening on http://127.0.0.1:PORT`, and serves until SIGTERM or SIGINT. It imports no Django:
what it knows about a charge it learns over HTTP.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from testproject.listening import LocalServer, serve
from testproject.payments.desk import Desk
from testproject.payments.faults import ForgottenError
from testproject.payments.ledger import Ledger
from testproject.payments.rules import Incoming, RefusalError, Reply, read_key, read_object

BODY_LIMIT = 64 * 1024
LONG_POLL_SECONDS = 5.0
IDLE_SECONDS = 60


class Server(LocalServer):
    """The provider: a desk behind HTTP."""

    def __init__(self, *, port: int, desk: Desk) -> None:
        self.desk = desk
        super().__init__(Handler, port=port)


class Handler(BaseHTTPRequestHandler):
    """Turns HTTP into calls of the desk, and its answers into one write each."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    wbufsize = -1  # head and body leave in one segment; two would meet delayed acknowledgements
    disable_nagle_algorithm = True

    def handle(self) -> None:
        """Serve the connection; a client that went away is no error of the provider."""
        with suppress(ConnectionError, TimeoutError):
            super().handle()

    def do_GET(self) -> None:
        """Answer the lookups, the ledger, the event log and the health question."""
        self._respond(self._get)

    def do_POST(self) -> None:
        """Answer charges, refunds and the control requests of tests."""
        self._respond(self._post)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class names it so
        """Print nothing: the ledger holds every request."""

    def _respond(self, work: Callable[[], Reply | None]) -> None:
        try:
            reply = work()
        except RefusalError as error:
            reply = error.reply
        except ForgottenError:
            reply = None
        if reply is None:
            self._hang_up()
        else:
            self._write(reply)

    def _get(self) -> Reply:
        address = urlsplit(self.path)
        query = dict(parse_qsl(address.query, keep_blank_values=True))
        desk = self.server.desk
        match address.path:
            case "/charges":
                return desk.lookup(address.path, kind="charge", query=query)
            case "/refunds":
                return desk.lookup(address.path, kind="refund", query=query)
            case "/_ledger":
                return desk.report()
            case "/_events":
                return self._events(query)
            case "/healthz":
                return Reply(status=200, body={"status": "ok"})
        raise RefusalError(404, "not_found", f"There is nothing at {address.path}.")

    def _events(self, query: dict[str, str]) -> Reply:
        try:
            after = int(query.get("after", "0"))
            seconds = min(max(float(query.get("seconds", LONG_POLL_SECONDS)), 0.0), LONG_POLL_SECONDS)
        except ValueError as error:
            raise RefusalError(400, "invalid_query", "after and seconds have to be numbers.") from error
        return Reply(status=200, body={"events": self.server.desk.ledger.events(after=after, seconds=seconds)})

    def _post(self) -> Reply | None:
        raw = self._read_body()
        path = urlsplit(self.path).path
        if path in {"/charges", "/refunds"}:
            return self.server.desk.post(
                Incoming(path=path, key=read_key(self.headers.get("Idempotency-Key")), raw=raw)
            )
        if path.startswith("/_control/"):
            return self.server.desk.control(path.removeprefix("/_control/"), read_object(raw or b"{}"))
        raise RefusalError(404, "not_found", f"There is nothing at {path}.")

    def _read_body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self.close_connection = True
            raise RefusalError(411, "length_required", "Send the body with a Content-Length.")
        if int(length) > BODY_LIMIT:
            self.close_connection = True
            raise RefusalError(413, "body_too_large", f"A body has at most {BODY_LIMIT} bytes.")
        raw = self.rfile.read(int(length))
        if len(raw) < int(length):
            raise ConnectionAbortedError("the client left in the middle of its request")
        return raw

    def _write(self, reply: Reply) -> None:
        body = json.dumps(reply.body).encode() if reply.raw is None else reply.raw
        self.send_response(reply.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


def main(argv: list[str] | None = None) -> int:
    """Serve until told to stop; return the exit status."""
    options = _parse(argv)
    desk = Desk(Ledger(options.ledger))
    serve(Server(port=options.port, desk=desk), stop_with_stdin=options.stop_with_stdin)
    desk.stop()
    return 0


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="testproject.payments.server", description="A fake payments provider.")
    parser.add_argument("--port", type=int, default=0, help="TCP port on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--ledger", type=Path, required=True, help="SQLite file that outlives the process")
    parser.add_argument("--stop-with-stdin", action="store_true", help="stop at the end of standard input")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
