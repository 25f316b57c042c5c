"""The verbs about resources: list them, and change their bounds."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_jobs.exceptions import KeyFormatError, OperatorError
from django_jobs.management.deciding import add_operator, decide
from django_jobs.management.tables import one_line, table
from django_jobs.management.verb import USAGE, Options, Verb, Write, add_json, as_json
from django_jobs.operate.bound_resource import BoundResource
from django_jobs.operate.history import plain
from django_jobs.operate.resource_status import ResourceStatus, resource_statuses


def _list(options: Options, write: Write) -> int:
    found = resource_statuses(using=options["database"])
    if options["json"]:
        for one in found:
            write(as_json(_as_dict(one)))
        return 0
    if not found:
        write("There is no resource; DJANGO_JOBS['RESOURCES'] names them.")
        return 0
    cells = [
        (
            one.name,
            "" if one.limit is None else one.limit,
            one.rate,
            "by hand" if one.by_hand else "settings" if one.declared else "",
            one.running,
        )
        for one in found
    ]
    write(table(("resource", "limit", "rate", "bounds of", "running"), cells))
    for one in found:
        for line in one.lines:
            write(one_line(f"{one.name}: {line}"))
    return 0


def _as_dict(one: ResourceStatus) -> dict[str, Any]:
    return {
        "resource": one.name,
        "declared": one.declared,
        "limit": one.limit,
        "rate": one.rate,
        "by_hand": one.by_hand,
        "running": one.running,
        "held_until": plain(one.paused_until),
        "held_by_job": plain(one.paused_by),
        "paused_by": one.pause.actor if one.pause else None,
        "notes": list(one.lines),
    }


def _add_bound(parser: CommandParser) -> None:
    parser.add_argument("resource", metavar="RESOURCE", help="Its name, as 'jobs resources' lists it.")
    parser.add_argument("--limit", type=int, help="So many of its jobs run at once; without it, as the settings say.")
    parser.add_argument(
        "--rate", default="", help="So many start: 10/s, 100/m, 1000/h, 5000/d; without it, as the settings say."
    )
    add_operator(parser)


def _bound(options: Options, write: Write) -> int:
    try:
        decision = BoundResource(
            options["resource"], limit=options["limit"], rate=options["rate"], using=options["database"]
        )
    except (OperatorError, KeyFormatError) as error:
        raise CommandError(str(error), returncode=USAGE) from None
    return decide(decision, options, write)


RESOURCE_VERBS: tuple[Verb, ...] = (
    Verb(
        name="resources",
        help="List the resources: their bounds, what runs, what holds them back.",
        add_arguments=add_json,
        run=_list,
    ),
    Verb(
        name="bound",
        help="Change limit and rate of a resource for all workers; prints the plan, acts with --ack.",
        add_arguments=_add_bound,
        run=_bound,
    ),
)
