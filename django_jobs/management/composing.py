"""The verbs about batches and chains: which there are, and how one stands."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_jobs.enqueue import batch_results, chains
from django_jobs.exceptions import ResultGoneError
from django_jobs.management.tables import pairs, table
from django_jobs.management.verb import Options, Verb, Write, add_json, as_json, json_values
from django_jobs.models import Batch, Chain, Job
from django_jobs.operate.wording import instant

MOST = 50
NOT_FOUND = 1


def _add_one(parser: CommandParser, what: str) -> None:
    parser.add_argument(
        "id", nargs="?", type=uuid.UUID, metavar="ID", help=f"Show this {what}; default: list the newest {MOST}."
    )
    add_json(parser)


def _add_batches(parser: CommandParser) -> None:
    _add_one(parser, "batch")
    parser.add_argument("--open", action="store_true", help="List those that are not closed.")


def _batches(options: Options, write: Write) -> int:
    using = options["database"]
    if options["id"] is not None:
        return _batch(options["id"], options, write)
    listed = Batch.objects.using(using).order_by("-pk").defer("callback")
    rows = list((listed.filter(closed_at__isnull=True) if options["open"] else listed)[:MOST])
    if options["json"]:
        for row in rows:
            write(as_json(json_values(_batch_values(row))))
        return 0
    cells = [(row.pk, _state(row), row.callback_type, row.owner, instant(row.created_at), row.key) for row in rows]
    write(table(("batch", "state", "callback", "owner", "made", "key"), cells) if cells else "There is no such batch.")
    return 0


def _state(row: Batch) -> str:
    if row.closed_at is not None:
        return "closed"
    return "open: a dead letter keeps it so" if row.told_at else "open"


def _batch_values(row: Batch) -> dict[str, Any]:
    names = ("pk", "key", "owner", "on_dead", "callback_type", "callback_job_id", "created_at", "told_at", "closed_at")
    return {("id" if name == "pk" else name): getattr(row, name) for name in names}


def _batch(batch_id: uuid.UUID, options: Options, write: Write) -> int:
    found = _found(lambda: batch_results.read(batch_id, using=options["database"]))
    row = Batch.objects.using(options["database"]).defer("callback").get(pk=batch_id)
    told = {
        **_batch_values(row),
        "state": found.state,
        **{name: getattr(found, name) for name in ("open", "succeeded", "cancelled", "resolved", "dead", "total")},
    }
    if options["json"]:
        write(as_json(json_values(told)))
        return 0
    write(pairs((name.replace("_", " "), _told(value)) for name, value in told.items()))
    waits = Job.objects.using(options["database"]).filter(batch_id=batch_id, finished_at__isnull=True)[:MOST]
    if cells := [(job.pk, job.job_type, job.state, job.error_type) for job in waits]:
        write("")
        write(table(("not finished", "type", "state", "last error"), cells))
    return 0


def _told(value: Any) -> Any:
    return instant(value) if hasattr(value, "utcoffset") else value


def _found(reading: Any) -> Any:
    try:
        return reading()
    except ResultGoneError as error:
        raise CommandError(str(error), returncode=NOT_FOUND) from None


def _chains(options: Options, write: Write) -> int:
    if options["id"] is not None:
        return _chain(options["id"], options, write)
    rows = list(Chain.objects.using(options["database"]).order_by("-pk")[:MOST])
    found = [(row, chains.read(row.pk, using=options["database"])) for row in rows]
    if options["json"]:
        for row, one in found:
            write(as_json({**json_values(one), "state": one.state, "key": row.key, "owner": row.owner}))
        return 0
    cells = [(row.pk, one.state, _place(one), row.owner, instant(row.created_at), row.key) for row, one in found]
    write(table(("chain", "state", "place", "owner", "made", "key"), cells) if cells else "There is no chain.")
    return 0


def _place(found: chains.ChainResult) -> str:
    reached = sum(link.job_id is not None for link in found.links)
    return f"{reached} of {len(found.links)}"


def _chain(chain_id: uuid.UUID, options: Options, write: Write) -> int:
    found = _found(lambda: chains.read(chain_id, using=options["database"]))
    if options["json"]:
        write(as_json({**json_values(found), "state": found.state}))
        return 0
    write(f"Chain {chain_id}: {found.state}.")
    write(table(("place", "type", "job", "state"), _links(found)))
    return 0


def _links(found: chains.ChainResult) -> Iterator[tuple[object, ...]]:
    for link in found.links:
        notes = ", ".join(filter(None, (link.resolution, "rows pruned" if link.is_pruned else "")))
        yield link.position, link.job_type, link.job_id, f"{link.state} ({notes})" if notes else link.state


COMPOSING_VERBS: tuple[Verb, ...] = (
    Verb(
        name="batches",
        help="List batches, or show how one stands and what it waits for.",
        add_arguments=_add_batches,
        run=_batches,
    ),
    Verb(
        name="chains",
        help="List chains, or show the links of one.",
        add_arguments=lambda parser: _add_one(parser, "chain"),
        run=_chains,
    ),
)
