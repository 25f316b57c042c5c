"""The verbs that hold a queue, a job type, a schedule or a resource back, and let it go on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_jobs.conf import get_settings
from django_jobs.define import registry
from django_jobs.define.schedules import find_schedule
from django_jobs.domain.states import PauseKind
from django_jobs.exceptions import KeyFormatError, PauseError
from django_jobs.management.tables import one_line, table
from django_jobs.management.verb import USAGE, Options, Verb, Write, add_json, as_json
from django_jobs.models import Pause
from django_jobs.operate.history import plain
from django_jobs.operate.listing import parse_since, parse_span
from django_jobs.operate.wording import instant
from django_jobs.store.pauses import pause, pauses, resume
from django_jobs.store.schedules import find_row
from django_jobs.store.times import read_now
from django_jobs.store.waiting import known_queues

_COLUMNS = ("kind", "name", "actor", "reason", "paused_until", "created_at")


def _add_name(parser: CommandParser) -> None:
    parser.add_argument(
        "kind", metavar="KIND", choices=[kind.value for kind in PauseKind], help="queue, type, schedule or resource."
    )
    parser.add_argument("name", metavar="NAME", help="The name of the queue, job type, schedule or resource.")
    parser.add_argument("--as", dest="actor", metavar="USER", required=True, help="Who decides this.")


def _add_pause(parser: CommandParser) -> None:
    _add_name(parser)
    parser.add_argument("--reason", required=True, help="Why; it is shown wherever somebody asks why jobs wait.")
    end = parser.add_mutually_exclusive_group()
    end.add_argument(
        "--until", metavar="TIME", help="When it ends by itself: 2026-11-29T18:00 (UTC unless it says so)."
    )
    end.add_argument("--for", dest="span", metavar="SPAN", help="After how long it ends by itself: 30m, 2h, 7d.")


def _end(options: Options) -> datetime | None:
    try:
        if options["span"]:
            return read_now(options["database"]) + parse_span(options["span"])
        return parse_since(options["until"], using=options["database"]) if options["until"] else None
    except (ValueError, OverflowError) as error:
        raise CommandError(str(error), returncode=USAGE) from None


def _pause(options: Options, write: Write) -> int:
    using = options["database"]
    try:
        row = pause(
            options["kind"],
            options["name"],
            actor=options["actor"],
            reason=options["reason"],
            until=_end(options),
            using=using,
        )
    except (PauseError, KeyFormatError) as error:
        raise CommandError(str(error), returncode=USAGE) from None
    end = f" until {instant(row.paused_until)}" if row.paused_until else ""
    write(one_line(f"Paused {row.kind} {row.name}{end}. Workers know within about a second; what runs goes on."))
    for line in _doubts(row, using):
        write(one_line(line))
    return 0


def _doubts(row: Pause, using: str) -> Iterator[str]:
    if row.kind == PauseKind.TYPE and registry.find(row.name) is None:
        yield f"Note: this code declares no job type {row.name!r}."
    if row.kind == PauseKind.RESOURCE and row.name not in get_settings().resources:
        yield f"Note: the settings of this code name no resource {row.name!r}."
    if row.kind == PauseKind.SCHEDULE and find_schedule(row.name) is None and find_row(row.name, using=using) is None:
        yield f"Note: this code declares no schedule {row.name!r}, and no worker has announced one."
    declared = {definition.options.queue_name for _, definition in registry.definitions()}
    if row.kind == PauseKind.QUEUE and row.name not in declared and row.name not in known_queues(using=using):
        yield f"Note: no job type is declared for queue {row.name!r}, and nothing waits in it."


def _resume(options: Options, write: Write) -> int:
    try:
        ended = resume(options["kind"], options["name"], actor=options["actor"], using=options["database"])
    except (PauseError, KeyFormatError) as error:
        raise CommandError(str(error), returncode=USAGE) from None
    what = f"{options['kind']} {options['name']}"
    write(one_line(f"Resumed {what}." if ended else f"Nothing to do: {what} was not paused."))
    return 0


def _pauses(options: Options, write: Write) -> int:
    rows = pauses(using=options["database"])
    if options["json"]:
        for row in rows:
            write(as_json(_as_dict(row)))
    elif rows:
        cells = [
            (row.kind, row.name, row.actor, instant(row.created_at), instant(row.paused_until), row.reason)
            for row in rows
        ]
        write(table(("kind", "name", "by", "since", "until", "reason"), cells))
    else:
        write("Nothing is paused.")
    return 0


def _as_dict(row: Pause) -> dict[str, Any]:
    return {column: plain(getattr(row, column)) for column in _COLUMNS}


PAUSE_VERBS: tuple[Verb, ...] = (
    Verb(
        name="pause",
        help="Hold a queue, a job type, a schedule or a resource back: what runs goes on, nothing new of it starts.",
        add_arguments=_add_pause,
        run=_pause,
    ),
    Verb(
        name="resume",
        help="Let a queue, a job type, a schedule or a resource go on.",
        add_arguments=_add_name,
        run=_resume,
    ),
    Verb(name="pauses", help="List what is paused, by whom and why.", add_arguments=add_json, run=_pauses),
)
