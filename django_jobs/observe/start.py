"""Beginning to observe: once per process, when the apps are ready."""

from __future__ import annotations

from django_jobs import signals, telemetry
from django_jobs.observe import logs
from django_jobs.observe.metrics import Metrics
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.outlet import Outlet, port

_started: list[Metrics] = []


def start() -> Metrics:
    """Subscribe metrics, log lines and the signal to telemetry; a second call changes nothing."""
    if not _started:
        metrics = Metrics()
        telemetry.subscribe(metrics)
        telemetry.subscribe(logs.log)
        telemetry.subscribe(signals.relay)
        port.make, port.text = _make_outlet, _text
        _started.append(metrics)
    return _started[0]


def _make_outlet(config: WorkerConfig, address: str, number: int) -> Outlet:
    from django_jobs.observe.server import WorkerOutlet  # models are not loaded before the apps are

    return WorkerOutlet(config, address, number)


def _text(using: str) -> str:
    from django_jobs.observe.server import exposition

    return exposition(using)
