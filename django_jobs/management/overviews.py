"""The verbs that show the whole: ``jobs status``, ``jobs metrics``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_jobs.management.contracts import CONTRACT_VERB
from django_jobs.management.tables import one_line, table
from django_jobs.management.verb import USAGE, Options, Verb, Write, add_json, as_json, json_values
from django_jobs.models import Pause
from django_jobs.operate.status import QueueStatus, Status, status
from django_jobs.operate.wording import counted, duration, instant
from django_jobs.store.overview import Waiting
from django_jobs.worker.outlet import port

_HEADS = ("queue", "state", "waiting", "oldest", "running", "retry", "next retry", "later", "aside", "dead", "workers")


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
            yield one_line(f"Queue {queue.name} is held: {_held(queue.paused)}")
        if queue.expired:
            yield one_line(f"Queue {queue.name}: {counted(queue.expired, 'running job')} past the end of the lease.")
    for pause in found.paused_types:
        yield one_line(f"Job type {pause.name} is held: {_held(pause)}")
    yield from _waiting_lines("Side effects without a known outcome", found.effects)
    yield from _waiting_lines("Events on their way", found.outbox)
    yield from _waiting_lines("Deliveries that wait for a human", found.dead_deliveries)
    live = sum(worker.live for worker in found.workers)
    silent = [worker.name for worker in found.workers if not worker.live]
    names = f" ({', '.join(silent)})" if silent else ""
    yield one_line(f"{counted(live, 'worker')} live, {len(silent)} silent{names}.")


def _held(pause: Pause) -> str:
    until = f" until {instant(pause.paused_until)}" if pause.paused_until else ""
    return f"by {pause.actor}{until}: {pause.reason}"


def _waiting_lines(what: str, items: Sequence[Waiting]) -> Iterator[str]:
    if items:
        each = "; ".join(f"{item.name} {item.many}, oldest {duration(item.age)}" for item in items)
        yield one_line(f"{what}: {each}.")


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
    CONTRACT_VERB,
    Verb(
        name="metrics",
        help="Print the gauges that are read from the database, once, for Prometheus. Exit 1 if it cannot be read.",
        add_arguments=_add_metrics,
        run=_metrics,
    ),
)
