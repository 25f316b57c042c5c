"""What a worker answers over HTTP: ``/metrics``, ``/livez``, ``/readyz``. Threads of the supervisor serve it."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from django_jobs.observe.catalogue import BY_NAME
from django_jobs.observe.children import Children
from django_jobs.observe.families import merged
from django_jobs.observe.gauges import DatabaseGauges
from django_jobs.observe.health import Answer, Readiness, live
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.heartbeat_file import Told

SLOWEST_CLIENT = 10.0  # seconds that a client may take to ask
TEXT = "text/plain; charset=utf-8"


class WorkerOutlet:
    """The outlet of one worker; see :class:`django_jobs.worker.outlet.Outlet`.

    The port is taken at once, so that a port in use is told before the worker starts.

    Raises:
        OSError: It cannot listen there.
    """

    def __init__(self, config: WorkerConfig, address: str, port: int) -> None:
        self._config = config
        self._look: Callable[[], Told | None] = lambda: None
        self._readiness = Readiness(config.database)
        self._gauges = DatabaseGauges(config.database)
        self._server = _Server((address, port), self._answer)
        self._children = Children()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def environment(self) -> Mapping[str, str]:
        """Return what makes children count where this process reads."""
        return self._children.environment()

    def start(self, look: Callable[[], Told | None]) -> None:
        """Begin to answer."""
        self._look = look
        self._server.begin()

    def child_ended(self, pid: int) -> None:
        """Keep what a child counted."""
        self._children.ended(pid)

    def stop(self) -> None:
        """End, and remove the children's files."""
        self._server.end()
        self._children.remove()

    def collect(self) -> Iterable[Metric]:
        """Return every metric: of this process, of its children, of the worker as a whole, and of the database."""
        yield from merged([*REGISTRY.collect(), *self._children.collect()])
        yield from _worker_gauges(self._look(), self._config)
        yield from self._gauges.collect()

    def _answer(self, path: str) -> tuple[int, str, bytes]:
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, _text(self)
        if path == "/livez":
            return _health(live(self._look()))
        if path == "/readyz":
            return _health(self._readiness.judge(self._look()))
        return 404, TEXT, b"This worker answers /metrics, /livez and /readyz.\n"


def _health(answer: Answer) -> tuple[int, str, bytes]:
    return (200 if answer.good else 503), TEXT, f"{answer.text}\n".encode()


def _text(collector: Any) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)


def exposition(using: str) -> str:
    """Return the gauges of a database in Prometheus's text format."""
    return _text(DatabaseGauges(using)).decode()


def _worker_gauges(told: Told | None, config: WorkerConfig) -> Iterable[Metric]:
    if told is None:
        return
    vitals = told.vitals
    ready = sum(child.ready for child in vitals.children)
    values = {
        "worker_slots": ready * config.slots,
        "worker_last_tick_timestamp_seconds": time.time() - told.age,
        "worker_blind": float(vitals.blind),
    }
    for name, value in values.items():
        yield GaugeMetricFamily(BY_NAME[name].base, BY_NAME[name].help, value=value)


class _Server(http.server.ThreadingHTTPServer):
    """A small server on one address; its threads end with the process."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, place: tuple[str, int], answer: Callable[[str], tuple[int, str, bytes]]) -> None:
        self.answer = answer
        super().__init__(place, _Handler)
        self._serving = False

    def begin(self) -> None:
        """Answer from now on, in threads of its own."""
        self._serving = True
        threading.Thread(target=self.serve_forever, name="django_jobs-metrics", daemon=True).start()

    def end(self) -> None:
        """Stop to answer and give the port back."""
        if self._serving:
            self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that went away is no news."""


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = SLOWEST_CLIENT
    server: _Server
    server_version = "django_jobs"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer."""
        self._send()

    def do_HEAD(self) -> None:
        """Answer without the body."""
        self._send(body=False)

    def _send(self, *, body: bool = True) -> None:
        try:
            status, kind, content = self.server.answer(self.path.partition("?")[0])
        except Exception as error:  # noqa: BLE001  the worker goes on, and whoever asked is told
            status, kind, content = 500, TEXT, f"This could not be collected: {type(error).__name__}.\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing: probes come every few seconds."""
