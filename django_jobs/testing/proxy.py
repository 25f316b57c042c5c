"""A proxy before PostgreSQL that loses a chosen request or a chosen reply, or stands still as a dead network does.

It reads what a client sends message by message, so that a fault hits one whole statement: also a prepared one, whose
text went over the wire long before. Not for encrypted connections.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

Fault = Literal["drop_reply", "drop_request"]

STARTUP_CODES = (80877103, 80877104)  # asks for TLS or GSS; the start-up message follows
ABORT = struct.pack("ii", 1, 0)  # linger 0: closing sends a reset, as a crash does


@dataclass(slots=True)
class Rule:
    """One fault: at the ``nth`` statement from now on that contains ``text``, and again at each further ``nth``.

    ``fired`` is set when it has hit so many ``times``; it then hits no more.
    """

    text: str
    fault: Fault
    nth: int
    times: int = 1
    seen: int = 0
    hit: int = 0
    fired: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def hits(self, statement: str) -> bool:
        """Count the statement, and say whether this is the one."""
        if self.fired.is_set() or self.text not in statement:
            return False
        with self._lock:
            self.seen += 1
            if self.fired.is_set() or self.seen % self.nth:
                return False
            self.hit += 1
            if self.hit >= self.times:
                self.fired.set()
        return True


class PostgresProxy:
    """Listens on a port of its own; use it with ``with``. ``statements`` is what clients had executed, in order."""

    def __init__(self, url: str, *, delay: float = 0.0) -> None:
        self.delay = delay  # seconds before each reply
        parts = urlsplit(url)
        self._upstream = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._parts = parts
        self._rules: list[Rule] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sessions: list[_Session] = []
        self._swallows = False
        self.statements: list[str] = []

    def __enter__(self) -> PostgresProxy:
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for session in self._sessions:
            session.abort()

    @property
    def url(self) -> str:
        """The URL of the database behind this proxy."""
        place = f"127.0.0.1:{self._listener.getsockname()[1]}"
        user = self._parts.netloc.rpartition("@")[0]
        return urlunsplit(self._parts._replace(netloc=f"{user}@{place}" if user else place))

    def lose(self, text: str, *, fault: Fault, nth: int = 1, times: int = 1) -> Rule:
        """Lose the reply to, or the request of, each ``nth`` statement from now on that contains ``text``.

        After so many ``times`` it loses no more.
        """
        rule = Rule(text, fault, nth, times)
        self._rules.append(rule)
        return rule

    def blackhole(self, *, new: bool = True) -> None:
        """Pass nothing on, in either direction: connections stay open, and nobody learns of anything.

        Also the end of a connection is not passed on meanwhile, so the server keeps the session and its locks.

        Args:
            new: Swallow connections that are made from now on too. Otherwise they work, as on another path.
        """
        self._swallows = new
        for session in list(self._sessions):
            session.passes.clear()

    def restore(self) -> None:
        """Pass everything on again, what piled up first: the network is back."""
        self._swallows = False
        for session in list(self._sessions):
            session.passes.set()

    def reset_all(self) -> None:
        """End every connection at once on both sides; new ones work."""
        for session in list(self._sessions):
            session.abort()
        self._sessions.clear()

    def point_at(self, url: str) -> None:
        """Send connections that are made from now on to another server."""
        parts = urlsplit(url)
        self._upstream = (parts.hostname or "127.0.0.1", parts.port or 5432)

    def fault_for(self, statement: str) -> Fault | None:
        """Note a statement and return the fault that hits it."""
        self.statements.append(statement)
        for rule in self._rules:
            if rule.hits(statement):
                return rule.fault
        return None

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._upstream)
                except OSError:  # the server is away: the client is told so, and the proxy goes on
                    client.close()
                    continue
                session = _Session(self, client, server)
                if self._swallows:
                    session.passes.clear()
                self._sessions.append(session)
                session.start()


class _Session:
    """One client and its server connection."""

    def __init__(self, proxy: PostgresProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._prepared: dict[bytes, str] = {}
        self._loses_reply = False
        self.passes = threading.Event()  # cleared: nothing is passed on
        self.passes.set()

    def start(self) -> None:
        for work in (self._upwards, self._downwards):
            threading.Thread(target=self._guarded, args=(work,), name="proxy-session", daemon=True).start()

    def abort(self) -> None:
        """End both connections at once."""
        self.passes.set()
        for line in (self._client, self._server):
            with contextlib.suppress(OSError):
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
                line.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(OSError):
                line.close()

    def _guarded(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except (OSError, EOFError):
            pass
        finally:
            self.passes.wait()
            self.abort()

    def _downwards(self) -> None:
        while data := self._server.recv(65536):
            if self._loses_reply:
                return  # the server answered, so it did what was asked; nobody will know
            self.passes.wait()
            if self._proxy.delay:
                threading.Event().wait(self._proxy.delay)
            self._client.sendall(data)

    def _upwards(self) -> None:
        while True:
            start = self._message(typed=False)
            self.passes.wait()
            self._server.sendall(start)
            if struct.unpack("!I", start[4:8])[0] not in STARTUP_CODES:
                break
        while True:
            message = self._message(typed=True)
            self.passes.wait()
            statement = self._statement(message)
            fault = self._proxy.fault_for(statement) if statement is not None else None
            if fault == "drop_request":
                return
            self._loses_reply = self._loses_reply or fault == "drop_reply"
            self._server.sendall(message)

    def _message(self, *, typed: bool) -> bytes:
        head = self._exactly(5 if typed else 4)
        return head + self._exactly(struct.unpack("!I", head[-4:])[0] - 4)

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            data = self._client.recv(count - len(found))
            if not data:
                raise EOFError
            found += data
        return found

    def _statement(self, message: bytes) -> str | None:
        """Return the text that this message executes; None for a message that executes nothing."""
        kind, body = message[:1], message[5:]
        if kind == b"Q":
            return body.rstrip(b"\0").decode(errors="replace")
        if kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self._prepared[name] = text.decode(errors="replace")
        if kind == b"B":
            _, name, _ = body.split(b"\0", 2)
            return self._prepared.get(name, "")
        return None
