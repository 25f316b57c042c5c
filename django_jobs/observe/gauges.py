"""What is read from the database when somebody asks: counts and ages, at most once per 15 s and process.

A series that was told once is told for as long as the process lives: a queue that emptied reads 0 and does not vanish.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from django.db import connections
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric

from django_jobs import clock
from django_jobs.conf import get_settings
from django_jobs.define import registry
from django_jobs.domain.lanes import BEHIND
from django_jobs.domain.states import PauseKind
from django_jobs.observe import labels
from django_jobs.observe.catalogue import BUILD_INFO, SPECS, Source
from django_jobs.observe.version import version
from django_jobs.store.overview import Overview, overview
from django_jobs.worker.connection import bounded
from django_jobs.worker.watch import watch

logger = logging.getLogger("django_jobs.maintenance")

FRESH = 15.0  # seconds
LIMIT = timedelta(seconds=3)  # for one statement
WHOLE = 8.0  # seconds for the whole look, below the ten that Prometheus waits
WAITING = ("queued", "behind", "scheduled", "retry", "aside", "running")

_OF_JOBS = ("oldest_job_age_seconds", "dead_letter_jobs", "dead_letter_groups", "expired_leases")
_OF_KEYS = ("oldest_serial_wait_seconds", "blocked_serial_keys", "oldest_blocked_serial_key_age_seconds")

Values = dict[tuple[str, tuple[str, ...]], float]


@dataclass(slots=True)
class _Look:
    """One look at the database: its values, whether it is complete, and how long it took."""

    values: Values = field(default_factory=dict)
    up: bool = False
    seconds: float = 0.0


class DatabaseGauges:
    """A collector for one database. Whoever asks while somebody else looks gets what the last look saw."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._lock = threading.Lock()
        self._looked_at = float("-inf")
        self._last = _Look()
        self._told: set[tuple[str, tuple[str, ...]]] = set()
        self._queues, self._effects, self._destinations = labels.Names(), labels.Names(), labels.Names()
        self._resources = labels.Names()

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges; after a look that failed only ``exporter_up`` 0, so that nobody believes old numbers."""
        self._refresh()
        look = self._last
        values = dict(look.values)
        values[("exporter_up", ())] = float(look.up)
        values[("exporter_duration_seconds", ())] = look.seconds
        for spec in SPECS:
            if spec.source is Source.DATABASE:
                family = GaugeMetricFamily(spec.base, spec.help, labels=spec.labels)
                for (name, of), value in sorted(values.items()):
                    if name == spec.name:
                        family.add_metric(of, value)
                yield family
        yield _build_info()

    def _refresh(self) -> None:
        if clock.boot_seconds() - self._looked_at < FRESH or not self._lock.acquire(blocking=False):
            return
        try:
            self._last = self._look()
            self._looked_at = clock.boot_seconds()
        finally:
            self._lock.release()

    def _look(self) -> _Look:
        began = clock.boot_seconds()
        own = not connections[self._using].in_atomic_block
        try:
            with watch.over(self._using, WHOLE), bounded(self._using, LIMIT):
                found = overview(using=self._using)
        except Exception as error:  # noqa: BLE001  whoever asks is told that nothing is known
            logger.warning("metrics.failed", extra={"event": "metrics.failed", "error_type": type(error).__name__})
            return _Look(seconds=clock.boot_seconds() - began)
        finally:
            if own:
                with contextlib.suppress(Exception):
                    connections[self._using].close()  # a thread of a server, which ends
        return _Look(values=self._filled(self._values(found)), up=True, seconds=clock.boot_seconds() - began)

    def _filled(self, values: Values) -> Values:
        self._told |= set(values)
        return {**dict.fromkeys(self._told, 0.0), **values}

    def _values(self, found: Overview) -> Values:
        values = _zeros()
        self._add_jobs(values, found)
        self._add_composition(values, found)
        for queue, entry in get_settings().queues.items():
            if "capacity" in entry:
                values[("queue_capacity_jobs", (queue,))] = entry["capacity"]
        for pause in found.pauses:
            if pause.kind == PauseKind.QUEUE:
                values[("queue_paused", (self._queues.label(pause.name),))] = 1
        self._add_resources(values, found)
        for item in found.effects:
            name = self._effects.label(item.name)
            _add(values, "unresolved_side_effects", (name,), item.many)
            _at_least(values, "oldest_unresolved_side_effect_age_seconds", (name,), item.age)
        for item in found.pending:
            name = self._destinations.label(item.name)
            _add(values, "outbox_pending_events", (name,), item.many)
            _at_least(values, "outbox_oldest_event_age_seconds", (name,), item.age)
        for item in found.dead:
            _add(values, "outbox_dead_events", (self._destinations.label(item.name),), item.many)
        for breaker in found.breakers:
            name = self._destinations.label(breaker.name)
            values[("downstream_breaker_open", (name,))] = 1
            _add(values, "downstream_breaker_failures", (name,), breaker.failures)
        for worker in found.workers:
            _add(values, "workers", ("live" if worker.live else "stale",), 1)
        return values

    def _add_resources(self, values: Values, found: Overview) -> None:
        paused = {pause.name for pause in found.pauses if pause.kind == PauseKind.RESOURCE}
        for name, stand in found.resources.items():
            label = (self._resources.label(name),)
            _add(values, "resource_running_jobs", label, stand.standing.running)
            if stand.standing.bounds.limit is not None:
                values[("resource_limit_jobs", label)] = stand.standing.bounds.limit
            until = stand.standing.paused_until
            values[("resource_held", label)] = float(name in paused or (until is not None and until > stand.at))

    def _add_jobs(self, values: Values, found: Overview) -> None:
        for group in found.groups:
            job = (self._queues.label(group.queue_name), labels.job_type(group.job_type), labels.band(group.band))
            if group.stands == "dead_lettered":
                _add(values, "dead_letter_jobs", job, group.many)
                _add(values, "dead_letter_groups", job, group.errors)
                continue
            _add(values, "backlog_jobs", (*job, group.stands), group.many)
            _add(values, "expired_leases", job, group.expired)
            if group.oldest is not None and group.stands != "aside":
                _at_least(values, "oldest_job_age_seconds", job, found.now - group.oldest)
        for oldest in found.oldest:
            job = (
                self._queues.label(oldest.queue_name),
                labels.job_type(oldest.job_type),
                labels.band(oldest.priority),
            )
            _at_least(values, "oldest_job_age_seconds", job, oldest.age)
            if oldest.lane == BEHIND:
                _at_least(values, "oldest_serial_wait_seconds", job, oldest.age)

    def _add_composition(self, values: Values, found: Overview) -> None:
        for held in found.held:
            job = (self._queues.label(held.queue_name), labels.job_type(held.job_type), labels.band(held.band))
            _add(values, "blocked_serial_keys", job, held.many)
            _at_least(values, "oldest_blocked_serial_key_age_seconds", job, held.age)
        values[("open_batches", ())] = found.batches.many
        values[("blocked_batches", ())] = found.batches.told
        values[("oldest_open_batch_age_seconds", ())] = found.batches.age.total_seconds()


def _add(values: Values, name: str, of: tuple[str, ...], many: float) -> None:
    values[(name, of)] = values.get((name, of), 0.0) + many


def _at_least(values: Values, name: str, of: tuple[str, ...], age: timedelta) -> None:
    values[(name, of)] = max(values.get((name, of), 0.0), age.total_seconds(), 0.0)


def _zeros() -> Values:
    """Return a zero for all that is declared, so that alerts find their series before the first job."""
    values: Values = {("workers", (state,)): 0.0 for state in ("live", "stale")}
    for gauge in ("downstream_breaker_open", "downstream_breaker_failures"):
        values |= {(gauge, (destination,)): 0.0 for destination in get_settings().destinations}
    for name, definition in registry.definitions():
        options = definition.options
        if name != definition.job_type:
            continue
        job = (options.queue_name, name, labels.band(options.priority))
        values[("queue_paused", job[:1])] = 0.0
        values |= {("backlog_jobs", (*job, state)): 0.0 for state in WAITING}
        values |= {(gauge, job): 0.0 for gauge in (*_OF_JOBS, *(_OF_KEYS if options.serial_key else ()))}
    return values


def _build_info() -> InfoMetricFamily:
    facts = {"version": version(), "code_version": get_settings().code_version}
    return InfoMetricFamily(BUILD_INFO.removesuffix("_info"), "Versions of the package and of the handlers.", facts)
