"""The fake provider as a real HTTP server on this machine, for what runs in processes of its own."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from django_jobs.testing.script import MalformedAnswerError

if TYPE_CHECKING:
    from django_jobs.testing.downstream import Answer, FakeDownstream

MALFORMED = "<html>502 Bad Gateway</html>"
LONGEST_HOLD = 60.0  # seconds for which a request without an answer is held


def headers_of(answer: Answer) -> dict[str, str]:
    """Return the headers that say what the status and the body do not."""
    headers = {"Idempotent-Replayed": "true"} if answer.replayed else {}
    if answer.retry_after is not None:
        headers["Retry-After"] = str(round(answer.retry_after.total_seconds()))
    return headers


def _object(body: bytes) -> dict[str, Any]:
    given = json.loads(body or b"{}")
    if not isinstance(given, dict):
        msg = "A JSON object is needed."
        raise TypeError(msg)
    return given


class DownstreamServer:
    """Listens on a port of its own of 127.0.0.1 for as long as the block runs; ``url`` is where."""

    def __init__(self, downstream: FakeDownstream) -> None:
        self.ends = threading.Event()
        handler = type("Handler", (_Handler,), {"downstream": downstream, "ends": self.ends})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop; requests that are held get no answer."""
        self.ends.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The address, without a path."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    downstream: FakeDownstream
    ends: threading.Event

    def do_GET(self) -> None:
        """Say what is known under a key."""
        parts = [part for part in self.path.partition("?")[0].split("/") if part]
        if len(parts) < 2:  # an operation and a key
            self._tell(404, "{}", {})
            return
        self._answer(self.downstream.find(parts[-2], key=parts[-1]))

    def do_POST(self) -> None:
        """Take a request."""
        parts = [part for part in self.path.partition("?")[0].split("/") if part]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            given = _object(body)
            answer = self.downstream.send(parts[-1], key=self.headers.get("Idempotency-Key"), body=given)
        except MalformedAnswerError:
            self._tell(200, MALFORMED, {})
        except TimeoutError:
            self.ends.wait(LONGEST_HOLD)
            self.close_connection = True
        except ConnectionResetError:
            self.close_connection = True
        except (ValueError, TypeError, IndexError):
            self._tell(400, '{"error": "an operation and a JSON object are needed"}', {})
        else:
            self._answer(answer)

    do_PUT = do_PATCH = do_POST  # noqa: N815  the names that the server looks for

    def log_message(self, *_: Any) -> None:
        """Be silent: the calls are kept by the provider."""

    def _answer(self, answer: Answer) -> None:
        self._tell(answer.status, json.dumps(dict(answer.body), default=str), headers_of(answer))

    def _tell(self, status: int, text: str, headers: dict[str, str]) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if text == MALFORMED else "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
