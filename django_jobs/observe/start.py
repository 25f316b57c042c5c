"""Beginning to observe: once per process, when the apps are ready."""

from __future__ import annotations

from django_jobs import signals, telemetry
from django_jobs.observe import logs
from django_jobs.observe.metrics import Metrics

_started: list[Metrics] = []


def start() -> Metrics:
    """Subscribe metrics, log lines and the signal to telemetry; a second call changes nothing."""
    if not _started:
        metrics = Metrics()
        telemetry.subscribe(metrics)
        telemetry.subscribe(logs.log)
        telemetry.subscribe(signals.relay)
        _started.append(metrics)
    return _started[0]
