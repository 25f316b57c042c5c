"""``jobs contract``: what job types, operations, events and consumers promise, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_jobs.management.tables import pairs
from django_jobs.management.verb import USAGE, Options, Verb, Write, add_json, as_json, json_values
from django_jobs.operate.contract import (
    RECOVERY,
    Contract,
    JobContract,
    OperationContract,
    ScheduleContract,
    contract,
)
from django_jobs.operate.contract_events import ConsumerContract, EventContract, RouteContract
from django_jobs.operate.wording import duration


def _add_contract(parser: CommandParser) -> None:
    parser.add_argument(
        "types", metavar="TYPE", nargs="*", help="Job types, operations, event types or consumers; default: all."
    )
    add_json(parser)


def _contract(options: Options, write: Write) -> int:
    found = contract()
    wanted = set(options["types"])
    if wanted:
        found = _only(wanted, found)
    if options["json"]:
        write(as_json({**json_values(found), "without_key": list(found.without_key), "recovery_words": RECOVERY}))
    else:
        write("\n\n".join(_contract_parts(found)))
    return 0


def _only(wanted: set[str], found: Contract) -> Contract:
    """Return what has one of these names.

    Raises:
        CommandError: Nothing has one of them.
    """
    known = {name for item in found.jobs for name in (item.job_type, *item.aliases)}
    known |= {item.name for item in found.operations} | {item.name for item in found.schedules}
    known |= {item.event_type for item in found.events}
    if wanted - known:
        msg = f"This code declares neither a job type nor an operation, event type or schedule {min(wanted - known)!r}."
        raise CommandError(msg, returncode=USAGE)
    jobs = tuple(item for item in found.jobs if wanted & {item.job_type, *item.aliases})
    types = {item.job_type for item in jobs}
    return Contract(
        jobs=jobs,
        operations=tuple(item for item in found.operations if item.name in wanted),
        events=tuple(item for item in found.events if item.event_type in wanted),
        consumers=tuple(item for item in found.consumers if item.job_type in types),
        schedules=tuple(item for item in found.schedules if item.name in wanted or item.job_type in types),
    )


def _contract_parts(found: Contract) -> Iterator[str]:
    for job in found.jobs:
        yield f"JOB {job.job_type}\n{pairs(job_lines(job))}"
    for operation in found.operations:
        yield f"OPERATION {operation.name}\n{pairs(operation_lines(operation))}"
    for event in found.events:
        yield f"EVENT {event.event_type} v{event.version}\n{pairs(event_lines(event))}"
    for consumer in found.consumers:
        yield f"CONSUMER {consumer.consumer}\n{pairs(consumer_lines(consumer))}"
    for schedule in found.schedules:
        yield f"SCHEDULE {schedule.name}\n{pairs(schedule_lines(schedule))}"
    if found.without_key:
        yield f"Operations without a business key of their own: {', '.join(found.without_key)}."
    yield pairs((word, text) for word, text in RECOVERY.items())


def schedule_lines(schedule: ScheduleContract) -> Iterator[tuple[str, object]]:
    """Yield when a job type is enqueued by itself, as names and values for people."""
    yield "job type", schedule.job_type
    yield "rule", schedule.rule
    late = f", at most {duration(schedule.grace)} late" if schedule.missed == "skip" else ""
    yield "missed ticks", f"{schedule.missed}{late}"
    if schedule.arguments:
        yield "arguments", schedule.arguments


def job_lines(job: JobContract) -> Iterator[tuple[str, object]]:
    """Yield what a job type promises, as names and values for people."""
    older = f", reads {', '.join(map(str, job.reads_versions))} too" if job.reads_versions else ""
    yield "version", f"{job.version}{older}"
    if job.aliases:
        yield "also called", ", ".join(job.aliases)
    yield "arguments", ", ".join(job.arguments)
    yield "queue", f"{job.queue_name}, priority {job.priority}"
    if job.resource:
        yield "resource", job.resource
    yield "owner", job.owner
    yield "recovery", job.recovery
    yield "key", f"{job.key} within {job.key_scope}" if job.key else "none: nothing is deduplicated"
    if job.key:
        yield "key lives", f"until {duration(job.key_ttl)} after the end of its job"
        yield "a duplicate", "is an error" if job.on_duplicate == "reject" else "returns the job that is there"
    if job.subject:
        yield "subject", job.subject
    yield "budget", f"{duration(job.budget)}; lease {duration(job.lease)}; at most {duration(job.max_runtime)} in all"
    if job.soft_timeout:
        yield "soft time-out", "SoftTimeoutError in the handler when the budget is over"
    if job.useful_for:
        yield "useful for", duration(job.useful_for)
    yield "retry", _retry_text(job.retry)


def _retry_text(retry: Mapping[str, Any]) -> str:
    parts = [
        f"delays from {duration(retry['base'])} × {retry['factor']:g} up to {duration(retry['cap'])}",
        f"transient errors for {duration(retry['transient_max_age'])}",
        f"{retry['unknown_attempts']} attempts with unknown errors",
        f"{retry['losses']} losses",
    ]
    named = [f"{what}: {', '.join(retry[what])}" for what in ("permanent", "transient") if retry[what]]
    return "; ".join([*parts, *named])


def operation_lines(operation: OperationContract) -> Iterator[tuple[str, object]]:
    """Yield what an operation promises, as names and values for people."""
    yield "provider", operation.provider
    yield "owner", operation.owner
    yield "recovery", operation.recovery
    repeated = {
        "key": "is applied once per idempotency key",
        "natural": "comes to the same as the first",
        "none": "acts a second time",
    }
    yield "a repeated request", repeated[operation.dedupe]
    if operation.key_lifetime:
        yield "the provider's key lives", duration(operation.key_lifetime)
    yield "business key", "required" if operation.requires_key else "optional: without key= it is the job's id"
    yield "can be asked what happened", "yes" if operation.can_reconcile else "no"
    yield "one request takes", f"at most {duration(operation.timeout)}"
    yield "settled", f"{duration(operation.settle)} after its deadline"
    yield "documented", operation.docs


def event_lines(event: EventContract) -> Iterator[tuple[str, object]]:
    """Yield what an event type holds and where it goes, as names and values for people."""
    yield "fields", ", ".join(event.fields) if event.is_declared else "not declared in this code"
    for route in event.routes:
        yield from _route_lines(route)
    if not event.routes:
        yield "goes to", "nobody; it is kept, and can be sent later"


def _route_lines(route: RouteContract) -> Iterator[tuple[str, object]]:
    owner = f", owner {route.owner}" if route.owner else ""
    yield "goes to", f"{route.destination} ({'job' if route.is_subscriber else 'publisher'} {route.by}{owner})"
    yield "  confirmed", route.confirmed
    if not route.is_subscriber:
        window = route.duplicate_window
        known = (
            f"recognised by the destination for {duration(window)}" if window else "not recognised by the destination"
        )
        yield "  duplicates", f"{known}: the receiver looks at the event's id"
    yield "  order", route.order
    yield "  documented", route.docs


def consumer_lines(consumer: ConsumerContract) -> Iterator[tuple[str, object]]:
    """Yield what a job type promises about messages of ``receive()``, as names and values for people."""
    yield "job", consumer.job_type
    yield "takes", ", ".join(consumer.takes)
    yield "owner", consumer.owner
    yield "a message", "is taken once by its source and id: one job, stored in the transaction that says so"
    yield "a repeated id", f"is a duplicate for {duration(consumer.keep)}, or as long as receive() is told"
    yield "other content", "under the same id is put aside, and the owner is told"
    yield "order", "none: messages are worked on as they come, and may overtake each other"


CONTRACT_VERB = Verb(
    name="contract",
    help="Print what job types, operations, events and consumers promise, as this code declares it.",
    add_arguments=_add_contract,
    run=_contract,
)
