"""What happens in this process, counted by prometheus-client in its default registry.

Each process counts what happens in it: a web process its enqueues, a worker's child its attempts. A worker collects its
children (:mod:`django_jobs.observe.children`); in a web process any view of the default registry shows the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, cast

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from django_jobs.observe import labels
from django_jobs.observe.catalogue import SPECS, Kind, Source, Spec

Fields = Mapping[str, Any]

JOBS_KEPT = 1000  # combinations of queue, type and priority whose labels are remembered
_ATTEMPT_OUTCOMES = {"lost": "lease_lost"}  # everything else is called as telemetry calls it
_EFFECTS = {
    "effect.confirmed": "confirmed",
    "effect.rejected": "failed",
    "effect.unknown": "ambiguous",
    "effect.adopted": "skipped",
    "effect.abandoned": "abandoned",
    "effect.review": "review",
    "effect.compensated": "compensated",
}
_MADE = {Kind.COUNTER: Counter, Kind.HISTOGRAM: Histogram, Kind.GAUGE: Gauge}


def _make(spec: Spec, registry: CollectorRegistry) -> Any:
    more: dict[str, Any] = {}
    if spec.kind is Kind.HISTOGRAM:
        more["buckets"] = spec.buckets
    if spec.kind is Kind.GAUGE:
        more["multiprocess_mode"] = "livesum"
    return _MADE[spec.kind](spec.base, spec.help, spec.labels, registry=registry, **more)


class Metrics:
    """The metrics of one registry, fed by telemetry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._made = {spec.name: _make(spec, registry) for spec in SPECS if spec.source is Source.EVENTS}
        self._series: dict[tuple[str, ...], Any] = {}
        self._jobs: dict[tuple[Any, Any, Any], tuple[str, str, str]] = {}
        self._queues, self._effects = labels.Names(), labels.Names()
        self._texts = labels.Names()  # operations, loops, destinations and the like: all of them named in code
        self._hear: dict[str, Callable[[Fields], None]] = {
            "job.enqueue": self._enqueued("created"),
            "enqueue.duplicate": self._enqueued("duplicate"),
            "enqueue.conflict": self._enqueued("conflict"),
            "enqueue.refused": self._enqueued("rejected_full"),
            "job.claim": self._claim,
            "job.renew": self._count("lease_renewals", "renewed"),
            "job.rescue": self._rescue,
            "job.dead": self._dead,
            "job.replay": self._count("replays", "queued"),
            "lease.refused": self._refused,
            "attempt.started": lambda fields: self._busy(fields, 1),
            "attempt.done": lambda fields: self._busy(fields, -1),
            "attempt.ended": self._ended,
            "claim.made": self._claimed,
            "attempt.soft_timeout": self._count("soft_timeouts"),
            "coroutine.blocked": self._count("coroutines_blocked"),
            "loop.failed": self._loop_failed,
            "effect.reconciled": self._reconciled,
            "delivery.publish": self._published,
            "delivery.settle": self._delivered,
            "downstream.called": self._called,
            "publisher.done": self._carried,
            "destination.down": self._down,
            "schedule.tick": self._ticked,
            "batch.close": lambda fields: self.series("batches_closed", str(fields["outcome"])).inc(),
            "batch.callback": self._count("batch_callbacks"),
            **{f"inbox.{outcome}": self._received(outcome) for outcome in ("created", "duplicate", "quarantined")},
            **{event: self._effect(outcome) for event, outcome in _EFFECTS.items()},
        }

    def __call__(self, event: str, fields: Fields) -> None:
        """Count one event of telemetry."""
        hear = self._hear.get(event)
        if hear is not None:
            hear(fields)

    def series(self, name: str, *values: str) -> Any:
        """Return the series of a metric with these label values; looking one up anew costs more than counting."""
        place = (name, *values)
        found = self._series.get(place)
        if found is None:
            metric = self._made[name]
            found = self._series[place] = metric.labels(*values) if values else metric
        return found

    def _job(self, fields: Fields) -> tuple[str, str, str]:
        given = (fields.get("queue_name"), fields.get("job_type"), fields.get("priority"))
        known = self._jobs.get(given)
        if known is not None:
            return known
        queue = self._queues.label(str(given[0] or labels.OTHER))
        found = (queue, labels.job_type(given[1]), labels.band(given[2]))
        if labels.OTHER not in found and len(self._jobs) < JOBS_KEPT:  # a type may still be registered
            self._jobs[given] = found
        return found

    def _count(self, name: str, *more: str) -> Callable[[Fields], None]:
        return lambda fields: self.series(name, *self._job(fields), *more).inc()

    def _enqueued(self, outcome: str) -> Callable[[Fields], None]:
        return lambda fields: self.series("enqueued", *self._job(fields), outcome).inc(fields.get("count", 1))

    def _claim(self, fields: Fields) -> None:
        delay = cast("timedelta", fields["delay"]).total_seconds()
        self.series("queue_delay_seconds", *self._job(fields)).observe(max(0.0, delay))

    def _rescue(self, fields: Fields) -> None:
        job, cause = self._job(fields), str(fields["cause"])
        self.series("lost_attempts", *job, cause).inc()
        if cause == "expired":
            self.series("lease_expirations", *job).inc()

    def _dead(self, fields: Fields) -> None:
        self.series("dead_lettered", *self._job(fields), str(fields["reason"])).inc()

    def _refused(self, fields: Fields) -> None:
        job, operation = self._job(fields), str(fields["operation"])
        self.series("fenced_writes", *job, self._texts.label(operation)).inc()
        if operation == "renew":
            self.series("lease_renewals", *job, "not_owner").inc()

    def _busy(self, fields: Fields, change: int) -> None:
        self.series("worker_busy_slots", self._job(fields)[0]).inc(change)

    def _ended(self, fields: Fields) -> None:
        job, outcome = self._job(fields), str(fields["outcome"])
        outcome = _ATTEMPT_OUTCOMES.get(outcome, outcome)
        self.series("attempts", *job, outcome).inc()
        if "duration_s" in fields:
            self.series("attempt_duration_seconds", *job, outcome).observe(fields["duration_s"])
        if fields.get("error_class"):
            self.series("attempt_errors", *job, fields["error_class"]).inc()
        if fields.get("over_budget"):
            self.series("attempts_over_budget", *job).inc()
        state = "dead_lettered" if fields.get("dead_reason") else outcome
        if state in {"succeeded", "dead_lettered", "cancelled"}:
            self.series("completion_seconds", *job, state).observe(max(0.0, fields["age_s"]))
            if fields.get("generation", 1) > 1:
                self.series("replays", *job, state).inc()

    def _claimed(self, fields: Fields) -> None:
        self.series("worker_claims", "claimed" if fields["count"] else "empty").inc()
        self.series("claim_duration_seconds").observe(fields["seconds"])

    def _loop_failed(self, fields: Fields) -> None:
        loop = self._texts.label(str(fields["loop"]))
        self.series("worker_loop_failures", loop).inc()
        if loop == "claim":
            self.series("worker_claims", "error").inc()

    def _effect(self, outcome: str) -> Callable[[Fields], None]:
        return lambda fields: self._note_effect(fields, outcome)

    def _note_effect(self, fields: Fields, outcome: str) -> None:
        name = self._effects.label(str(fields.get("name") or labels.OTHER))
        self.series("side_effects", *self._job(fields), name, outcome).inc()

    def _reconciled(self, fields: Fields) -> None:
        if fields["verdict"] == "succeeded":
            self._note_effect(fields, "reconciled_done")
        elif fields["final"]:
            self._note_effect(fields, "reconciled_absent")

    def _delivered(self, fields: Fields) -> None:
        kind, to = self._texts.label(str(fields["event_type"])), self._texts.label(str(fields["destination"]))
        self.series("outbox_dispatches", kind, to, str(fields["outcome"])).inc()

    def _published(self, fields: Fields) -> None:
        self._delivered({**fields, "outcome": "confirmed"})
        delay: timedelta | None = fields.get("delay")
        if delay is not None:
            to = self._texts.label(str(fields["destination"]))
            self.series("outbox_dispatch_delay_seconds", to).observe(max(0.0, delay.total_seconds()))

    def _called(self, fields: Fields) -> None:
        place = (*self._job(fields), self._texts.label(str(fields["downstream"])), str(fields["outcome"]))
        self.series("downstream_duration_seconds", *place).observe(max(0.0, fields["seconds"]))
        self._asked_to_wait(fields, "downstream")

    def _carried(self, fields: Fields) -> None:
        to = self._texts.label(str(fields["destination"]))
        self.series("outbox_batch_duration_seconds", to).observe(max(0.0, fields["seconds"]))
        self._asked_to_wait(fields, "destination")

    def _asked_to_wait(self, fields: Fields, whose: str) -> None:
        wait: timedelta | None = fields.get("retry_after")
        if wait is not None:
            name = self._texts.label(str(fields[whose]))
            self.series("downstream_retry_after_seconds", name).observe(max(0.0, wait.total_seconds()))

    def _down(self, fields: Fields) -> None:
        self.series("downstream_breaker_openings", self._texts.label(str(fields["destination"]))).inc()

    def _ticked(self, fields: Fields) -> None:
        self.series("schedule_ticks", *self._job(fields), str(fields["outcome"])).inc()
        late = cast("timedelta", fields["late"]).total_seconds()
        self.series("schedule_lateness_seconds", *self._job(fields)).observe(max(0.0, late))

    def _received(self, outcome: str) -> Callable[[Fields], None]:
        return lambda fields: self.series("inbox_messages", self._texts.label(str(fields["consumer"])), outcome).inc()
