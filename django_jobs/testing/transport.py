"""The fake provider behind httpx: for operations made by ``HttpJson`` and for clients that take a transport."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

try:
    import httpx
except ImportError as error:
    msg = "FakeDownstream.transport() needs httpx: pip install 'django-durable-jobs[httpx]'."
    raise ImportError(msg) from error

from django_jobs.effects.adapters.http import HttpJson
from django_jobs.testing.downstream import FakeDownstream
from django_jobs.testing.http_server import MALFORMED, headers_of
from django_jobs.testing.script import MalformedAnswerError


class DownstreamTransport(httpx.BaseTransport):
    """Turns requests into calls of a fake provider, and its answers into responses; see ``FakeDownstream``."""

    def __init__(self, downstream: FakeDownstream) -> None:
        self._downstream = downstream

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request.

        Raises:
            ReadTimeout: The script says that no answer comes.
            ReadError: It says that the connection ends.
        """
        parts = [part for part in request.url.path.split("/") if part]
        if request.method == "GET":
            answer = self._downstream.find(parts[-2], key=parts[-1])
        else:
            body = json.loads(request.read() or b"{}")
            try:
                answer = self._downstream.send(parts[-1], key=request.headers.get("Idempotency-Key"), body=body)
            except TimeoutError as error:
                raise httpx.ReadTimeout(str(error), request=request) from error
            except ConnectionResetError as error:
                raise httpx.ReadError(str(error), request=request) from error
            except MalformedAnswerError:
                return httpx.Response(200, text=MALFORMED, request=request)
        headers = headers_of(answer)
        return httpx.Response(answer.status, json=dict(answer.body), headers=headers, request=request)


@contextmanager
def carried(operation: HttpJson, downstream: FakeDownstream) -> Iterator[FakeDownstream]:
    """Let an operation talk to the fake provider instead of the network, in the block."""
    with mock.patch.object(operation, "_transport", DownstreamTransport(downstream)):
        yield downstream
