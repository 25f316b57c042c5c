"""One kept connection to one place: its addresses checked, everything under one deadline, answers cut to a size.

The time-outs of HTTP clients count per phase and per read, so a server that sends a byte now and then can hold a caller
for ever. Here each look-up, connect, handshake, write and read gets what is left of one deadline.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable
from ssl import SSLContext
from typing import Any, NamedTuple

import httpcore

from django_jobs.deadline import DeadlineStream
from django_jobs.outbox.publishers.addresses import Target, is_public

ANSWER_LIMIT = 64 * 1024  # bytes of a body that are read
IDLE = 4.0  # seconds for which an unused connection is kept; shorter than servers wait before they close one

Resolve = Callable[[str, int], list[str]]


class AddressRefusedError(httpcore.ConnectError):
    """The name has an address that is not public."""


class Answer(NamedTuple):
    """What came back; the body as far as it was read."""

    status: int
    headers: dict[str, str]
    body: bytes


def system_addresses(host: str, port: int) -> list[str]:
    """Look a name up as the system does."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class Line:
    """The connection to one target; ``touched`` says whether a byte of the last request may have left."""

    def __init__(
        self, target: Target, *, resolve: Resolve, allow_private: bool, ssl_context: SSLContext | None
    ) -> None:
        self._target = target
        self._resolve = resolve
        self._allow_private = allow_private
        self._looking_up: threading.Thread | None = None
        self._ends_at = 0.0
        self.touched = False
        self._pool = httpcore.ConnectionPool(
            ssl_context=ssl_context, max_connections=1, keepalive_expiry=IDLE, network_backend=_Backend(self)
        )

    def post(self, headers: Iterable[tuple[str, str]], body: bytes, *, seconds: float) -> Answer:
        """Send one request and return the answer, within so many seconds.

        Raises:
            Exception: Of any kind; ``touched`` says whether the request may have arrived.
        """
        self.touched, self._ends_at = False, time.monotonic() + seconds
        target = self._target
        request = httpcore.Request(
            method=b"POST",
            url=httpcore.URL(
                scheme=target.scheme.encode(), host=target.host.encode(), port=target.port, target=target.path
            ),
            headers=[(name.encode("ascii"), value.encode("ascii")) for name, value in headers],
            content=body,
        )
        response = self._pool.handle_request(request)
        try:
            fields = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
            return Answer(response.status, fields, _start_of(response))
        finally:
            response.close()

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()

    def left(self, limit: float | None = None) -> float:
        """Return the seconds that are left; zero or less means that the deadline has passed."""
        left = self._ends_at - time.monotonic()
        return left if limit is None else min(left, limit)

    def addresses(self, host: str, port: int) -> list[str]:
        """Look the name up once, and refuse it if any of its addresses is not public.

        A look-up cannot be interrupted, so it runs in a thread; while one hangs no other is begun.

        Raises:
            httpcore.ConnectError: The name has no address, or one that is refused.
            httpcore.ConnectTimeout: The look-up takes too long.
        """
        if self._looking_up is not None and self._looking_up.is_alive():
            raise httpcore.ConnectTimeout("an earlier look-up of the name still hangs")
        answer: queue.SimpleQueue[list[str] | Exception] = queue.SimpleQueue()
        self._looking_up = threading.Thread(target=self._look_up, args=(host, port, answer), daemon=True)
        self._looking_up.start()
        try:
            found = answer.get(timeout=max(self.left(), 0))
        except queue.Empty:
            raise httpcore.ConnectTimeout("no time left to look the name up") from None
        if isinstance(found, Exception):
            raise httpcore.ConnectError(f"the name cannot be looked up: {found}") from found
        if not found:
            raise httpcore.ConnectError("the name has no address")
        refused = [] if self._allow_private else [address for address in found if not is_public(address)]
        if refused:
            raise AddressRefusedError(f"the address {refused[0]} is not public")
        return found

    def _look_up(self, host: str, port: int, answer: queue.SimpleQueue[list[str] | Exception]) -> None:
        try:
            answer.put(self._resolve(host, port))
        except Exception as error:  # noqa: BLE001  handed over to the thread that waits
            answer.put(error)


def _start_of(response: httpcore.Response) -> bytes:
    """Read the body as far as is allowed; when it breaks off, what came before it: the status alone says enough."""
    content = bytearray()
    try:
        for chunk in response.iter_stream():
            content += chunk
            if len(content) > ANSWER_LIMIT:
                break
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError):
        pass
    return bytes(content[:ANSWER_LIMIT])


class _Backend(httpcore.NetworkBackend):
    def __init__(self, line: Line) -> None:
        self._line = line
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Try the checked addresses one after another, all inside the deadline; none is looked up again."""
        failure: Exception | None = None
        for address in self._line.addresses(host, port):
            left = self._line.left(timeout)
            if left <= 0:
                raise failure or httpcore.ConnectTimeout("no time left to connect")
            try:
                stream = self._backend.connect_tcp(address, port, left, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return DeadlineStream(stream, self._line)
        raise failure or httpcore.ConnectError("the name has no address")
