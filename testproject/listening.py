"""What the servers of the test project share: how they bind, say where they listen, and end. Imports no Django."""

from __future__ import annotations

import os
import signal
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class LocalServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1, with one thread per connection; threads never keep the process alive."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, handler: type[BaseHTTPRequestHandler], *, port: int) -> None:
        super().__init__(("127.0.0.1", port), handler)

    def server_bind(self) -> None:
        """Bind without the reverse DNS lookup that HTTPServer makes here, which can stall for seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    @property
    def url(self) -> str:
        """The base URL, with the port that the system gave."""
        return f"http://127.0.0.1:{self.server_port}"


def serve(server: LocalServer, *, stop_with_stdin: bool) -> None:
    """Print where the server listens, and serve until SIGTERM, SIGINT or, if wanted, the end of standard input."""

    def stop(*_: object) -> None:
        # shutdown() waits for the serving loop, which this thread may be running.
        threading.Thread(target=server.shutdown, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if stop_with_stdin:
        threading.Thread(target=_wait_for_end_of_stdin, args=(stop,), daemon=True).start()
    print(f"listening on {server.url}", flush=True)
    server.serve_forever(poll_interval=0.05)
    server.server_close()


def _wait_for_end_of_stdin(stop: Callable[[], None]) -> None:
    # os.read, not sys.stdin: a reader that blocks in sys.stdin holds its lock against the end of the interpreter.
    while os.read(0, 1024):
        continue
    stop()
