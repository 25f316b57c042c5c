"""The verbs that show the whole: ``jobs status``, ``jobs contract``, ``jobs metrics``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_jobs.management.tables import harmless, pairs, table
from django_jobs.management.verb import USAGE, Options, Verb, Write, add_json, as_json
from django_jobs.models import Pause
from django_jobs.operate.contract import RECOVERY, Contract, JobContract, OperationContract, contract
from django_jobs.operate.history import plain
from django_jobs.operate.status import QueueStatus, Status, status
from django_jobs.operate.wording import counted, duration, instant
from django_jobs.store.overview import Waiting
from django_jobs.worker.outlet import port

_HEADS = ("queue", "state", "waiting", "oldest", "running", "retry", "next retry", "later", "aside", "dead", "workers")


def json_values(value: Any) -> Any:
    """Return a value for JSON: spans of time as numbers in seconds, under names that say so."""
    if isinstance(value, Pause):
        return {name: plain(getattr(value, name)) for name in ("kind", "name", "actor", "reason", "paused_until")}
    if is_dataclass(value) and not isinstance(value, type):
        return {
            item.name + ("_seconds" if "timedelta" in str(item.type) else ""): json_values(getattr(value, item.name))
            for item in fields(value)
        }
    if isinstance(value, Mapping):
        return {_named(str(name), item): json_values(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(item) for item in value]
    return value.total_seconds() if isinstance(value, timedelta) else plain(value)


def _named(name: str, value: Any) -> str:
    return f"{name}_seconds" if isinstance(value, timedelta) else name


def _status(options: Options, write: Write) -> int:
    found = status(using=options["database"])
    if options["json"]:
        write(as_json(_status_dict(found)))
    else:
        write("\n".join(_status_lines(found)))
    return 0


def _status_dict(found: Status) -> dict[str, Any]:
    shown: dict[str, Any] = json_values(found)
    for queue, told in zip(found.queues, shown["queues"], strict=True):
        told["state"] = queue.state
    return shown


def _status_lines(found: Status) -> Iterator[str]:
    yield table(_HEADS, [_cells(queue, found.limit) for queue in found.queues])
    for queue in found.queues:
        if queue.paused is not None:
            yield harmless(f"Queue {queue.name} is held: {_held(queue.paused)}")
        if queue.expired:
            yield harmless(f"Queue {queue.name}: {counted(queue.expired, 'running job')} past the end of the lease.")
    for pause in found.paused_types:
        yield harmless(f"Job type {pause.name} is held: {_held(pause)}")
    yield from _waiting_lines("Side effects without a known outcome", found.effects)
    yield from _waiting_lines("Events on their way", found.outbox)
    yield from _waiting_lines("Deliveries that wait for a human", found.dead_deliveries)
    live = sum(worker.live for worker in found.workers)
    silent = [worker.name for worker in found.workers if not worker.live]
    names = f" ({', '.join(silent)})" if silent else ""
    yield harmless(f"{counted(live, 'worker')} live, {len(silent)} silent{names}.")


def _held(pause: Pause) -> str:
    until = f" until {instant(pause.paused_until)}" if pause.paused_until else ""
    return f"by {pause.actor}{until}: {pause.reason}"


def _waiting_lines(what: str, items: Sequence[Waiting]) -> Iterator[str]:
    if items:
        each = "; ".join(f"{item.name} {item.many}, oldest {duration(item.age)}" for item in items)
        yield harmless(f"{what}: {each}.")


def _cells(queue: QueueStatus, limit: int) -> tuple[object, ...]:
    def many(number: int) -> str:
        return f"≥ {number}" if number >= limit else str(number)

    return (
        queue.name,
        queue.state,
        many(queue.waiting) + (f" of {queue.capacity}" if queue.capacity is not None else ""),
        "-" if queue.oldest is None else duration(queue.oldest),
        queue.running,
        many(queue.retry),
        "-" if queue.retry_in is None else duration(queue.retry_in),
        many(queue.scheduled),
        many(queue.aside),
        many(queue.dead),
        f"{queue.workers} live" + (f", {queue.silent} silent" if queue.silent else ""),
    )


def _add_contract(parser: CommandParser) -> None:
    parser.add_argument("types", metavar="TYPE", nargs="*", help="Job types or operations; default: all.")
    add_json(parser)


def _contract(options: Options, write: Write) -> int:
    found = contract()
    wanted = set(options["types"])
    known = {name for item in found.jobs for name in (item.job_type, *item.aliases)}
    known |= {item.name for item in found.operations}
    if wanted - known:
        msg = f"This code declares neither a job type nor an operation {min(wanted - known)!r}."
        raise CommandError(msg, returncode=USAGE)
    if wanted:
        found = Contract(
            jobs=tuple(item for item in found.jobs if wanted & {item.job_type, *item.aliases}),
            operations=tuple(item for item in found.operations if item.name in wanted),
        )
    if options["json"]:
        write(as_json({**json_values(found), "without_key": list(found.without_key), "recovery_words": RECOVERY}))
    else:
        write("\n\n".join(_contract_parts(found)))
    return 0


def _contract_parts(found: Contract) -> Iterator[str]:
    for job in found.jobs:
        yield f"JOB {job.job_type}\n{pairs(job_lines(job))}"
    for operation in found.operations:
        yield f"OPERATION {operation.name}\n{pairs(operation_lines(operation))}"
    if found.without_key:
        yield f"Operations without a business key of their own: {', '.join(found.without_key)}."
    yield pairs((word, text) for word, text in RECOVERY.items())


def job_lines(job: JobContract) -> Iterator[tuple[str, object]]:
    """Yield what a job type promises, as names and values for people."""
    yield "version", job.version
    if job.aliases:
        yield "also called", ", ".join(job.aliases)
    yield "arguments", ", ".join(job.arguments)
    yield "queue", f"{job.queue_name}, priority {job.priority}"
    yield "owner", job.owner
    yield "recovery", job.recovery
    yield "key", f"{job.key} within {job.key_scope}" if job.key else "none: nothing is deduplicated"
    if job.key:
        yield "key lives", f"until {duration(job.key_ttl)} after the end of its job"
        yield "a duplicate", "is an error" if job.on_duplicate == "reject" else "returns the job that is there"
    if job.subject:
        yield "subject", job.subject
    yield "budget", f"{duration(job.budget)}; lease {duration(job.lease)}; at most {duration(job.max_runtime)} in all"
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


def _add_metrics(parser: CommandParser) -> None:
    parser.add_argument(
        "--textfile", metavar="PATH", type=Path, help="Replace this file, for node_exporter's textfile collector."
    )


def _metrics(options: Options, write: Write) -> int:
    text = port.text(options["database"]) if port.text is not None else ""
    path: Path | None = options["textfile"]
    if path is None:
        write(text.rstrip("\n"))
    else:
        _replace(path, text)
    return 0 if "django_jobs_exporter_up 1.0" in text else 1


def _replace(path: Path, text: str) -> None:
    """Replace the file as a whole: a reader sees the old text or the new one."""
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        msg = f"The file {path} cannot be written: {error.strerror or error}."
        raise CommandError(msg, returncode=USAGE) from None


OVERVIEW_VERBS: tuple[Verb, ...] = (
    Verb(
        name="status",
        help="Tell how each queue stands: what waits and for how long, who works, what is held, what needs a human.",
        add_arguments=add_json,
        run=_status,
    ),
    Verb(
        name="contract",
        help="Print what each job type and each operation promises, as this code declares it.",
        add_arguments=_add_contract,
        run=_contract,
    ),
    Verb(
        name="metrics",
        help="Print the gauges that are read from the database, once, for Prometheus. Exit 1 if it cannot be read.",
        add_arguments=_add_metrics,
        run=_metrics,
    ),
)
