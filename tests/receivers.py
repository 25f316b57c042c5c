"""A receiver of webhooks on a real socket, which answers as it is told, and keeps what came.

The certificates beside it were made once by a throw-away authority, whose key was not kept, and are valid for a century.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CERTIFICATES = Path(__file__).parent / "certificates"
HELD = 30.0  # seconds after which a test that forgot to end its receiver goes on


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived; ``connection`` counts the connections to the receiver."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int


Answer = Callable[["Receiver", socket.socket], bool]  # returns whether the connection is kept


def answer(status: int, *, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
    """Answer with a status."""

    def write(receiver: Receiver, connection: socket.socket) -> bool:
        lines = [f"HTTP/1.1 {status} Told", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        connection.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        return True

    return write


def raw(content: bytes) -> Answer:
    """Write bytes, which may be no HTTP, and close."""

    def write(receiver: Receiver, connection: socket.socket) -> bool:
        connection.sendall(content)
        return False

    return write


def silence(receiver: Receiver, connection: socket.socket) -> bool:
    """Take the request and never answer, until the receiver ends."""
    receiver.ended.wait(HELD)
    return False


def drip(first: bytes) -> Answer:
    """Write the first bytes, then one every 20 ms: each read of the client is quick, and the answer never ends."""

    def write(receiver: Receiver, connection: socket.socket) -> bool:
        connection.sendall(first)
        while not receiver.ended.wait(0.02):
            connection.sendall(b"x")
        return False

    return write


def hang_up(receiver: Receiver, connection: socket.socket) -> bool:
    """Take the request and close without an answer."""
    return False


class Receiver:
    """A server that answers every request with ``behaviour``; with a certificate's name it speaks TLS.

    With the ``port`` of one that was stopped it takes the other one's place.
    """

    def __init__(self, certificate: str = "", *, port: int = 0) -> None:
        self.behaviour: Answer = answer(204)
        self.requests: list[Request] = []
        self.connections = 0
        self.ended = threading.Event()
        self.names: list[str | None] = []  # that clients asked for in TLS
        self._context = self._tls(certificate) if certificate else None
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _tls(self, certificate: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATES / f"{certificate}.pem")
        context.sni_callback = lambda sock, name, ctx: self.names.append(name)  # type: ignore[assignment,misc]
        return context

    def _accept(self) -> None:
        while not self.ended.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection, self.connections), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        try:
            connection.settimeout(HELD)
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
            while (request := _read(connection, number)) is not None:
                self.requests.append(request)
                if not self.behaviour(self, connection):
                    return
        except OSError:
            pass
        finally:
            connection.close()

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Let go of everything; from now on connections are refused."""
        self.ended.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # else the thread that waits in accept() takes one more
        self._listener.close()


def _read(connection: socket.socket, number: int) -> Request | None:
    content = b""
    while b"\r\n\r\n" not in content:
        part = connection.recv(65536)
        if not part:
            return None
        content += part
    head, _, body = content.partition(b"\r\n\r\n")
    line, *fields = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    while len(body) < int(headers.get("content-length", "0")):
        part = connection.recv(65536)
        if not part:
            return None
        body += part
    return Request(line=line, headers=headers, body=body, connection=number)


def trusting() -> ssl.SSLContext:
    """Return a client's context that trusts the authority of the tests."""
    return ssl.create_default_context(cafile=str(CERTIFICATES / "authority.pem"))


def at_home(host: str, port: int) -> list[str]:
    """Look every name up as this machine."""
    return ["127.0.0.1"]


def webhook(receiver: Receiver, *, path: str = "/in?tenant=1", **options: Any) -> Any:
    """Return a publisher to the receiver, over plain HTTP unless the receiver speaks TLS."""
    from django_jobs.outbox.publishers.webhook import Webhook

    secure = receiver._context is not None
    values: dict[str, Any] = {
        "secrets": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "allow_private": True,
        "allow_http": not secure,
        "ports": [receiver.port],
        "resolve": at_home,
    }
    if secure:
        values["ssl_context"] = trusting()
    scheme = "https" if secure else "http"
    return Webhook(f"{scheme}://hooks.example:{receiver.port}{path}", **{**values, **options})
