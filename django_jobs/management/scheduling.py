"""The verbs about schedules: list them, and run one by hand."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from django_jobs.management.deciding import add_operator, decide
from django_jobs.management.tables import table
from django_jobs.management.verb import Options, Verb, Write, add_json, as_json
from django_jobs.operate.history import plain
from django_jobs.operate.run_schedule import RunSchedule
from django_jobs.operate.schedule_runner import announce_each, mine
from django_jobs.operate.schedule_status import ScheduleStatus, schedule_statuses
from django_jobs.operate.wording import instant


def _add_list(parser: CommandParser) -> None:
    parser.add_argument(
        "--announce", action="store_true", help="First write down what this code declares, as a worker does."
    )
    add_json(parser)


def _list(options: Options, write: Write) -> int:
    using = options["database"]
    failed = announce_each(mine(using=using), using=using).failed if options["announce"] else ()
    found = schedule_statuses(using=using)
    if options["json"]:
        for one in found:
            write(as_json(_as_dict(one)))
    elif found:
        write(_as_table(found))
    else:
        write("There is no schedule; a worker that starts writes down what its code declares.")
    if failed and not options["json"]:
        write(f"Could not be announced, the log says why: {', '.join(failed)}.")
    return 1 if failed else 0


def _as_table(found: list[ScheduleStatus]) -> str:
    cells = [
        (
            one.row.name,
            one.row.job_type,
            one.row.rule,
            one.row.missed,
            f"paused by {one.pause.actor}" if one.pause else instant(one.row.next_tick),
            one.row.last_job_id or "",
            one.note,
        )
        for one in found
    ]
    return table(("schedule", "type", "rule", "missed", "next tick", "last job", "note"), cells)


def _as_dict(one: ScheduleStatus) -> dict[str, Any]:
    row = one.row
    return {
        "schedule": row.name,
        "job_type": row.job_type,
        "rule": row.rule,
        "missed": row.missed,
        "owner": row.owner,
        "settled_at": plain(row.settled_at),
        "next_tick": plain(row.next_tick),
        "last_job": plain(row.last_job_id),
        "paused_by": one.pause.actor if one.pause else None,
        "note": one.note,
    }


def _add_run(parser: CommandParser) -> None:
    parser.add_argument("schedule", metavar="SCHEDULE", help="Its name, as 'jobs schedules' lists it.")
    add_operator(parser)


def _run(options: Options, write: Write) -> int:
    return decide(RunSchedule(options["schedule"], using=options["database"]), options, write)


SCHEDULE_VERBS: tuple[Verb, ...] = (
    Verb(
        name="schedules",
        help="List the schedules: when they tick next, who paused them, what is out of order.",
        add_arguments=_add_list,
        run=_list,
    ),
    Verb(
        name="run-schedule",
        help="Enqueue the job of a schedule once more, now; prints the plan, acts with --ack.",
        add_arguments=_add_run,
        run=_run,
    ),
)
