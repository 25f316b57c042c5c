"""Every metric with its type, its labels and its meaning: the code, the lint and the docs page read this one table.

Names follow Prometheus: base units, ``_total`` on counters. A label may never hold a job id, a key, a worker, a host, a
user or an error's text: such a label makes one series per job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

PREFIX = "django_jobs_"

JOB = ("queue", "job_type", "priority")  # on every metric about jobs
ALLOWED_LABELS = frozenset(
    {
        *JOB, "cause", "consumer", "destination", "downstream", "effect", "error_class", "event_type", "loop",
        "operation", "outcome", "reason", "resource", "state",
    }
)  # fmt: skip

DELAYS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 1800, 3600, 14400)
DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
PAUSES = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
CLAIMS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class Kind(StrEnum):
    """What a metric is to Prometheus."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


class Source(StrEnum):
    """Where a metric comes from."""

    EVENTS = "events"  # counted in the process in which it happens
    WORKER = "worker"  # what a supervisor knows about its worker
    DATABASE = "database"  # read from the database by whoever is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One metric; ``name`` without the prefix and, for a counter, without ``_total``."""

    name: str
    kind: Kind
    source: Source
    labels: tuple[str, ...]
    help: str
    values: str = ""
    buckets: tuple[float, ...] = ()

    @property
    def base(self) -> str:
        """The name with the prefix, as the client library takes it."""
        return PREFIX + self.name

    @property
    def full_name(self) -> str:
        """The name as it is scraped."""
        return self.base + ("_total" if self.kind is Kind.COUNTER else "")


def _counter(name: str, labels: Sequence[str], text: str, values: str = "") -> Spec:
    return Spec(name=name, kind=Kind.COUNTER, source=Source.EVENTS, labels=tuple(labels), help=text, values=values)


def _histogram(name: str, labels: Sequence[str], text: str, buckets: tuple[float, ...], values: str = "") -> Spec:
    return Spec(
        name=name,
        kind=Kind.HISTOGRAM,
        source=Source.EVENTS,
        labels=tuple(labels),
        help=text,
        values=values,
        buckets=buckets,
    )


def _gauge(name: str, source: Source, labels: Sequence[str], text: str, values: str = "") -> Spec:
    return Spec(name=name, kind=Kind.GAUGE, source=source, labels=tuple(labels), help=text, values=values)


_D = Source.DATABASE

SPECS: tuple[Spec, ...] = (
    _counter(
        "enqueued",
        (*JOB, "outcome"),
        "Calls that asked for a job, by what came of them; a later rollback takes none back.",
        "created, duplicate, conflict, rejected_full",
    ),
    _counter(
        "attempts",
        (*JOB, "outcome"),
        "Attempts that ended, by outcome.",
        "succeeded, retry, dead_lettered, lease_lost, snoozed, released, cancelled",
    ),
    _counter(
        "attempt_errors",
        (*JOB, "error_class"),
        "Attempts that ended with an error, by its class.",
        "permanent, transient, unknown",
    ),
    _counter("attempts_over_budget", JOB, "Attempts that ended inside their lease after their budget was over."),
    _counter("soft_timeouts", JOB, "Times that a handler was told, by SoftTimeoutError, that its budget is over."),
    _counter(
        "coroutines_blocked", JOB, "Times that a coroutine kept its event loop from turning for more than a second."
    ),
    _counter("dead_lettered", (*JOB, "reason"), "Jobs left to a human, by the rule that did it.", "see the job states"),
    _counter("replays", (*JOB, "outcome"), "Replays, and how they ended.", "queued, refused, succeeded, dead_lettered"),
    _counter(
        "lost_attempts",
        (*JOB, "cause"),
        "Attempts that nobody saw end: they may have succeeded.",
        "exit, silent, expired, ended",
    ),
    _counter("lease_expirations", JOB, "Attempts whose lease was over while their worker still said that it lives."),
    _counter("lease_renewals", (*JOB, "outcome"), "Renewals that were asked for.", "renewed, not_owner"),
    _counter(
        "fenced_writes",
        (*JOB, "operation"),
        "Writes that changed nothing, because the attempt no longer owned the job.",
        "succeed, fail, renew, complete and the like",
    ),
    _counter(
        "side_effects",
        (*JOB, "effect", "outcome"),
        "What was learned about side effects.",
        "confirmed, failed, ambiguous, skipped, reconciled_done, reconciled_absent, abandoned, review, compensated",
    ),
    _counter(
        "outbox_dispatches",
        ("event_type", "destination", "outcome"),
        "Tries to deliver an event.",
        "confirmed, returned, nacked, timeout, error, lost, released",
    ),
    _counter(
        "schedule_ticks",
        (*JOB, "outcome"),
        "Ticks of schedules, by what came of them; what is run by hand is left out.",
        "enqueued, duplicate, refused",
    ),
    _counter(
        "batches_closed",
        ("outcome",),
        "Batches that were closed: succeeded if all their members did, else mixed.",
        "succeeded, mixed",
    ),
    _counter("batch_callbacks", JOB, "Jobs that were enqueued because a batch was closed."),
    _counter("inbox_messages", ("consumer", "outcome"), "Messages from outside.", "created, duplicate, quarantined"),
    _counter("worker_claims", ("outcome",), "Claims of workers.", "claimed, empty, error"),
    _counter("worker_loop_failures", ("loop",), "Failures in the loops of workers; each is tried again."),
    _histogram(
        "queue_delay_seconds", JOB, "Time from when a job might run to its claim; a wanted delay is left out.", DELAYS
    ),
    _histogram("attempt_duration_seconds", (*JOB, "outcome"), "Time from the claim to the recorded end.", DURATIONS),
    _histogram(
        "completion_seconds",
        (*JOB, "state"),
        "Time from when a job could first run (since its last replay) to success or dead letter.",
        DELAYS,
    ),
    _histogram("schedule_lateness_seconds", JOB, "Time from a tick of a schedule to when it was run.", DELAYS),
    _histogram("claim_duration_seconds", (), "Time that one claim took.", CLAIMS),
    _histogram(
        "downstream_duration_seconds",
        (*JOB, "downstream", "outcome"),
        "Time that one request to a provider took, or one question what became of it; what was not sent is left out.",
        DURATIONS,
        "confirmed, rejected, unknown, asked, not_answered",
    ),
    _histogram(
        "downstream_retry_after_seconds",
        ("downstream",),
        "How long providers and destinations asked to be left alone, each time that one did.",
        PAUSES,
    ),
    _counter(
        "downstream_breaker_openings",
        ("downstream",),
        "Pauses in sending to a destination because it answered nothing, the first of an outage and each further one.",
    ),
    _histogram("outbox_batch_duration_seconds", ("destination",), "Time that a publisher took for a batch.", DURATIONS),
    _histogram(
        "outbox_dispatch_delay_seconds",
        ("destination",),
        "Time from publishing an event to its confirmation, by the clock of the worker's host; what a person sends "
        "again is left out.",
        DELAYS,
    ),
    _gauge("worker_busy_slots", Source.EVENTS, ("queue",), "Attempts that run now in this worker."),
    _gauge("worker_slots", Source.WORKER, (), "Attempts that this worker can run at once."),
    _gauge("worker_last_tick_timestamp_seconds", Source.WORKER, (), "When the supervisor's loop last went round."),
    _gauge("worker_blind", Source.WORKER, (), "1 while this worker cannot reach the database."),
    _gauge(
        "backlog_jobs",
        _D,
        (*JOB, "state"),
        "Jobs that are not finished, by state; at least so many where the number is the limit of the look.",
        "queued, behind, scheduled, retry, aside, running",
    ),
    _gauge("oldest_job_age_seconds", _D, JOB, "How long the oldest job is due that nobody has claimed; 0: none."),
    _gauge(
        "oldest_serial_wait_seconds",
        _D,
        JOB,
        "How long the job is due that waits longest behind another one of its serial key; 0: none.",
    ),
    _gauge("blocked_serial_keys", _D, JOB, "Serial keys that are held by a dead letter which nobody has dealt with."),
    _gauge(
        "oldest_blocked_serial_key_age_seconds",
        _D,
        JOB,
        "How long the oldest of these holds its key; 0: there is none.",
    ),
    _gauge("open_batches", _D, (), "Batches that are not closed; at least so many at the limit of the look."),
    _gauge("oldest_open_batch_age_seconds", _D, (), "Age of the oldest of these; 0: there is none."),
    _gauge("blocked_batches", _D, (), "Open batches whose owner was told that dead letters keep them open."),
    _gauge("dead_letter_jobs", _D, JOB, "Dead letters that nobody has dealt with."),
    _gauge("dead_letter_groups", _D, JOB, "Different errors among these dead letters."),
    _gauge("expired_leases", _D, JOB, "Running jobs whose lease is over."),
    _gauge("queue_capacity_jobs", _D, ("queue",), "How many jobs may wait in the queue; absent if there is no limit."),
    _gauge("queue_paused", _D, ("queue",), "1 while an operator holds the queue."),
    _gauge("resource_running_jobs", _D, ("resource",), "Running jobs that use the resource."),
    _gauge("resource_limit_jobs", _D, ("resource",), "How many may run at once; absent if there is no limit."),
    _gauge("resource_held", _D, ("resource",), "1 while an operator or the downstream itself holds the resource."),
    _gauge("unresolved_side_effects", _D, ("effect",), "Side effects of unfinished jobs whose outcome is not known."),
    _gauge(
        "oldest_unresolved_side_effect_age_seconds", _D, ("effect",), "Age of the oldest of these; 0: there is none."
    ),
    _gauge("outbox_pending_events", _D, ("destination",), "Events that are not delivered yet."),
    _gauge("outbox_oldest_event_age_seconds", _D, ("destination",), "Age of the oldest of these; 0: there is none."),
    _gauge("outbox_dead_events", _D, ("destination",), "Deliveries that wait for a human."),
    _gauge(
        "downstream_breaker_open",
        _D,
        ("downstream",),
        "1 while a destination does not answer: nothing is sent for a while, then one event at a time.",
    ),
    _gauge(
        "downstream_breaker_failures", _D, ("downstream",), "Batches in a row that it did not answer; 0: it answers."
    ),
    _gauge("workers", _D, ("state",), "Workers that have not stopped in good order.", "live, stale"),
    _gauge("exporter_up", _D, (), "1 if the last look at the database was complete."),
    _gauge("exporter_duration_seconds", _D, (), "Time that the last look took."),
)

BY_NAME = {spec.name: spec for spec in SPECS}
BUILD_INFO = f"{PREFIX}build_info"


def problems(spec: Spec) -> list[str]:
    """Say what is wrong with a metric by the rules that Prometheus's own linter has, and by ours."""
    found = []
    name = spec.full_name
    if spec.name != spec.name.lower() or not spec.name.replace("_", "a").isalnum():
        found.append(f"{name}: lower case letters, digits and underscores only")
    if spec.name.endswith("_total"):
        found.append(f"{name}: the client adds _total itself")
    if any(unit in spec.name.split("_") for unit in ("milliseconds", "ms", "minutes", "hours", "kilobytes")):
        found.append(f"{name}: base units only")
    if spec.kind is Kind.HISTOGRAM and not spec.name.endswith("_seconds"):
        found.append(f"{name}: a histogram of times ends in its unit")
    if not spec.help.endswith("."):
        found.append(f"{name}: the help is a sentence")
    found += [f"{name}: the label {label!r} is not allowed" for label in spec.labels if label not in ALLOWED_LABELS]
    found += [f"{name}: {kind} in the name" for kind in ("gauge", "counter", "histogram") if kind in spec.name]
    if "job_type" in spec.labels and not set(JOB) <= set(spec.labels):
        found.append(f"{name}: a metric about jobs carries {', '.join(JOB)}")
    return found
