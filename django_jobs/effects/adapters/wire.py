"""One HTTP exchange under one deadline, with the proof of whether a byte of the request left.

The time-outs of HTTP clients count per phase and per read, so a server that sends a byte now and then can hold a caller
for ever. Here each connect, write and read gets what is left of one deadline, and each exchange has a connection of its
own: a kept connection that the server closed meanwhile cannot make an unsent request look like a sent one.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from ssl import SSLContext
from typing import Any

import httpcore
import httpx

from django_jobs.deadline import DeadlineStream


class Wire:
    """The time that is left, and whether a write was begun: from then on the request may have arrived."""

    def __init__(self, remaining: Callable[[], float]) -> None:
        self._remaining = remaining
        self.touched = False

    def left(self, limit: float | None = None) -> float:
        """Return the seconds that are left, at most ``limit``; zero means that the deadline has passed."""
        left = self._remaining()
        return left if limit is None else min(left, limit)


class DeadlineTransport(httpx.BaseTransport):
    """An httpx transport for one exchange. Looking up a host name is the one step that no deadline can interrupt."""

    def __init__(self, wire: Wire, *, ssl_context: SSLContext | None = None) -> None:
        self._pool = httpcore.ConnectionPool(ssl_context=ssl_context, max_connections=1, network_backend=_Backend(wire))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request and return its answer with the body still to be read; errors are those of httpcore."""
        url = request.url
        response = self._pool.handle_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.read(),
            )
        )
        return httpx.Response(response.status, headers=response.headers, stream=_Body(response))

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        return self._response.iter_stream()

    def close(self) -> None:
        self._response.close()


class _Backend(httpcore.NetworkBackend):
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Try the addresses of the host one after another, all inside the deadline."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for *_, address in found:
            left = self._wire.left(timeout)
            if left <= 0:
                raise httpcore.ConnectTimeout("no time left to connect")
            try:
                stream = self._backend.connect_tcp(str(address[0]), port, left, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return DeadlineStream(stream, self._wire)
        raise failure
