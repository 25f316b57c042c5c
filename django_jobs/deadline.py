"""A network stream each of whose steps gets what is left of one deadline; for the rooms that speak HTTP.

The time-outs of HTTP clients count per phase and per read or write, so a peer that takes a byte now and then can hold a
caller for ever. Needs httpcore, which comes with httpx.
"""

from __future__ import annotations

import socket
from ssl import SSLContext
from typing import Any, Protocol

import httpcore


class Allowance(Protocol):
    """The time of one request, and whether a byte of it may have left."""

    touched: bool

    def left(self, limit: float | None = None) -> float:
        """Return the seconds that are left, at most ``limit``; zero or less means that the deadline has passed."""


class DeadlineStream(httpcore.NetworkStream):
    """A stream whose reads, writes and handshake end at the deadline; notes when a write is begun."""

    def __init__(self, stream: httpcore.NetworkStream, allowance: Allowance) -> None:
        self._stream = stream
        self._allowance = allowance

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read what has come."""
        left = self._allowance.left(timeout)
        if left <= 0:
            raise httpcore.ReadTimeout("no time left to read")
        return self._stream.read(max_bytes, timeout=left)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write piece by piece: the client's own loop would begin its time anew with each piece."""
        plain: socket.socket = self._stream.get_extra_info("socket")
        rest = memoryview(buffer)
        while rest:
            left = self._allowance.left(timeout)
            if left <= 0:
                raise httpcore.WriteTimeout("no time left to write")
            self._allowance.touched = True
            try:
                plain.settimeout(left)
                rest = rest[plain.send(rest) :]
            except TimeoutError:
                raise httpcore.WriteTimeout("no time left to write") from None
            except OSError as error:
                raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """Shake hands; what is said from then on has the same deadline."""
        left = self._allowance.left(timeout)
        if left <= 0:
            raise httpcore.ConnectTimeout("no time left for TLS")
        return DeadlineStream(self._stream.start_tls(ssl_context, server_hostname, timeout=left), self._allowance)

    def get_extra_info(self, info: str) -> Any:
        """Return what the stream below knows."""
        return self._stream.get_extra_info(info)
