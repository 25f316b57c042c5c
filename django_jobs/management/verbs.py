"""The verbs of ``manage.py jobs``: each declares its arguments, and turns options into text and an exit code."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_jobs.conf import get_settings
from django_jobs.domain.states import JobState
from django_jobs.management.bounding import RESOURCE_VERBS
from django_jobs.management.cancelling import CANCEL_VERBS
from django_jobs.management.commands.runworker import add_worker_arguments, work
from django_jobs.management.compensating import COMPENSATE_VERBS
from django_jobs.management.composing import COMPOSING_VERBS
from django_jobs.management.crashtest import add_crashtest, run_crashtest
from django_jobs.management.deciding_jobs import DECISION_VERBS
from django_jobs.management.events import EVENT_VERBS
from django_jobs.management.groups import add_groups, run_groups
from django_jobs.management.numbers import at_least_one, seconds
from django_jobs.management.overviews import OVERVIEW_VERBS
from django_jobs.management.pausing import PAUSE_VERBS
from django_jobs.management.prune import add_prune, run_prune
from django_jobs.management.scheduling import SCHEDULE_VERBS
from django_jobs.management.show import show_text
from django_jobs.management.tables import harmless, table
from django_jobs.management.verb import USAGE, Options, Verb, Write, add_json, as_json
from django_jobs.management.verifying import FOUND, VERIFY
from django_jobs.models import Job
from django_jobs.operate.alive import MAX_AGE, verdict_on
from django_jobs.operate.doctor import LONG, Diagnosis, diagnose
from django_jobs.operate.explain import Explanation, explain
from django_jobs.operate.history import as_dict, history_of, plain
from django_jobs.operate.listing import LIMIT, LONGEST, Filters, Listed, Page, list_jobs, parse_since
from django_jobs.operate.lookup import JobNotFoundError, find_job
from django_jobs.operate.wording import counted, instant

_LISTED = (
    "id",
    "job_type",
    "queue_name",
    "priority",
    "state",
    "generation",
    "fence",
    "subject",
    "owner",
    "dead_reason",
    "resolution",
    "error_class",
    "error_type",
    "available_at",
    "created_at",
    "finished_at",
    "code_version",
)


def _add_job(parser: CommandParser) -> None:
    parser.add_argument("job", metavar="JOB", help="The job's id, or its first 8 digits or more if no other begins so.")
    add_json(parser)


def _job(options: Options) -> Job:
    try:
        return find_job(options["job"], using=options["database"])
    except JobNotFoundError as error:
        raise CommandError(str(error), returncode=USAGE) from None


def _show(options: Options, write: Write) -> int:
    history = history_of(_job(options), using=options["database"])
    write(as_json(as_dict(history)) if options["json"] else show_text(as_dict(history)))
    return 0


def _explain(options: Options, write: Write) -> int:
    told = explain(_job(options), using=options["database"])
    if options["json"]:
        write(as_json(_explanation_dict(told)))
        return 0
    for place, section in enumerate(told.sections):
        write(("\n" if place else "") + section.title.upper())
        for line in section.lines:
            write(harmless(f"  {line}").replace("\n", "\n    "))
    return 0


def _explanation_dict(told: Explanation) -> dict[str, Any]:
    plan = told.replay
    return {
        "job": told.job_id,
        "sections": [{"title": section.title, "lines": list(section.lines)} for section in told.sections],
        "replay": {
            "refused": plan.refused,
            "safe": plan.safe,
            "rows": plan.rows,
            "effects": [
                {
                    "id": str(effect.effect_id),
                    "name": effect.name,
                    "provider": effect.provider,
                    "business_key": effect.business_key,
                    "on_replay": effect.on_replay.value,
                    "until": plain(effect.until),
                    "why": effect.why,
                }
                for effect in plan.effects
            ],
        },
    }


def _add_list(parser: CommandParser) -> None:
    states = [state.value for state in JobState]
    parser.add_argument("--state", action="append", default=[], choices=states, help="Only this state; repeatable.")
    parser.add_argument("--type", action="append", default=[], metavar="NAME", help="Only this job type; repeatable.")
    parser.add_argument("--queue", action="append", default=[], metavar="NAME", help="Only this queue; repeatable.")
    parser.add_argument("--subject", default="", help="Only jobs about this, for example order:42.")
    parser.add_argument("--key", default="", help="Only jobs that were enqueued with this idempotency key.")
    parser.add_argument("--lost", action="store_true", help="Only jobs with an attempt that was never observed to end.")
    parser.add_argument("--dead", action="store_true", help="Only dead letters that wait for a human.")
    parser.add_argument(
        "--since", metavar="TIME", help="Only jobs created since then: 2026-11-29T18:00 (UTC), or 12h, 7d."
    )
    parser.add_argument(
        "--limit", type=_limit, default=LIMIT, help=f"Jobs on one page, up to {LONGEST} (default: {LIMIT})."
    )
    parser.add_argument("--before", type=_uuid, metavar="JOB", help="Only jobs older than this one: the next page.")
    add_json(parser)


def _limit(text: str) -> int:
    number = at_least_one(text)
    if number > LONGEST:
        msg = f"{text!r} is more than {LONGEST}; use --before for the next page"
        raise argparse.ArgumentTypeError(msg)
    return number


def _uuid(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        msg = f"{text!r} is no whole job id"
        raise argparse.ArgumentTypeError(msg) from None


def _filters(options: Options) -> Filters:
    try:
        since = parse_since(options["since"], using=options["database"]) if options["since"] else None
    except ValueError as error:
        raise CommandError(str(error), returncode=USAGE) from None
    return Filters(
        states=options["state"],
        job_types=options["type"],
        queues=options["queue"],
        subject=options["subject"],
        key=options["key"],
        lost=options["lost"],
        dead=options["dead"],
        since=since,
        before=options["before"],
        limit=options["limit"],
    )


def _list(options: Options, write: Write) -> int:
    page = list_jobs(_filters(options), using=options["database"])
    if options["json"]:
        for item in page.jobs:
            write(as_json(_listed_dict(item)))
    elif page.jobs:
        write(_listed_table(page))
    else:
        write("No job matches.")
    return 0


def _listed_dict(item: Listed) -> dict[str, Any]:
    job = item.job
    return {
        **{column: plain(getattr(job, column)) for column in _LISTED},
        "key": item.key,
        "last_outcome": item.last_outcome,
        "losses": item.losses,
        "loss": item.loss,
    }


def _listed_table(page: Page) -> str:
    rows = [
        (
            item.job.pk,
            item.job.job_type,
            item.job.queue_name,
            _state(item),
            item.job.fence,
            item.key or item.job.subject,
            instant(item.job.created_at),
            _note(item),
        )
        for item in page.jobs
    ]
    text = table(("job", "type", "queue", "state", "attempts", "key or subject", "created", "note"), rows)
    return text + (f"\nMore: add --before {page.jobs[-1].job.pk}" if page.more else "")


def _state(item: Listed) -> str:
    return f"{item.job.state} ({item.job.resolution})" if item.job.resolution else item.job.state


def _note(item: Listed) -> str:
    loss = f"{counted(item.losses, 'loss', 'losses')}: {item.loss}" if item.losses else ""
    return "; ".join(filter(None, (item.job.dead_reason, loss, item.job.error_type)))


def _add_doctor(parser: CommandParser) -> None:
    parser.add_argument(
        "--long",
        type=seconds,
        default=LONG.total_seconds(),
        metavar="SECONDS",
        help="Name atomic job types that ran longer than this (default: %(default)s).",
    )
    parser.add_argument("--heartbeat-file", default="", metavar="PATH", help="Tell what this heartbeat file says too.")
    add_json(parser)


def _doctor(options: Options, write: Write) -> int:
    path = Path(options["heartbeat_file"]) if options["heartbeat_file"] else None
    found = diagnose(using=options["database"], long=timedelta(seconds=options["long"]), heartbeat_file=path)
    write(as_json(_diagnosis_dict(found)) if options["json"] else "\n".join(_diagnosis_lines(found)))
    return 0 if found.clean else FOUND


def _diagnosis_dict(found: Diagnosis) -> dict[str, Any]:
    return {
        "database": found.database,
        "read_at": plain(found.read_at),
        "clean": found.clean,
        "findings": [
            {"id": item.id, "level": item.level, "text": item.text, "mend": item.mend} for item in found.findings
        ],
    }


def _diagnosis_lines(found: Diagnosis) -> Iterator[str]:
    for item in found.findings:
        yield f"{item.level.upper()} {item.id}: {item.text}".replace("\n", "\n    ")
        if item.mend:
            yield f"    {item.mend}"
    many = sum(item.level == "warning" for item in found.findings)
    yield (
        f"{counted(many, 'thing')} to mend in database {found.database!r}."
        if many
        else (f"Nothing to mend in database {found.database!r}.")
    )


def _add_alive(parser: CommandParser) -> None:
    rules = get_settings()
    parser.add_argument(
        "--heartbeat-file",
        default=rules.heartbeat_file,
        metavar="PATH",
        help="The file that the worker keeps (default: the setting HEARTBEAT_FILE).",
    )
    parser.add_argument(
        "--max-age",
        type=seconds,
        default=MAX_AGE,
        metavar="SECONDS",
        help="An older file is that of a worker that stands still or is gone (default: %(default)s).",
    )
    parser.add_argument(
        "--ready", action="store_true", help="Fail also while the worker starts, stops or is blind: it takes no jobs."
    )


def _alive(options: Options, write: Write) -> int:
    if not options["heartbeat_file"]:
        msg = "Give --heartbeat-file, the path that the worker was started with, or set HEARTBEAT_FILE."
        raise CommandError(msg, returncode=USAGE)
    verdict = verdict_on(Path(options["heartbeat_file"]), max_age=options["max_age"])
    write(verdict.text)
    good = verdict.ready if options["ready"] else verdict.alive
    return 0 if good else FOUND


def _work(options: Options, _: Write) -> int:
    return work(options)


VERBS: tuple[Verb, ...] = (
    Verb(name="show", help="Print everything that is stored about one job.", add_arguments=_add_job, run=_show),
    Verb(name="list", help="List jobs, newest first.", add_arguments=_add_list, run=_list),
    Verb(
        name="explain",
        help="Tell in plain English what happened to one job and what is next.",
        add_arguments=_add_job,
        run=_explain,
    ),
    VERIFY,
    Verb(
        name="doctor",
        help="Look for what will bite: settings, database, workers, stored jobs; exit 1 if something does.",
        add_arguments=_add_doctor,
        run=_doctor,
    ),
    *DECISION_VERBS,
    *EVENT_VERBS,
    *OVERVIEW_VERBS,
    *PAUSE_VERBS,
    *SCHEDULE_VERBS,
    *RESOURCE_VERBS,
    *COMPOSING_VERBS,
    *CANCEL_VERBS,
    *COMPENSATE_VERBS,
    Verb(
        name="prune",
        help="Remove the content, then the rows, of jobs that finished long ago; what is still needed stays.",
        add_arguments=add_prune,
        run=run_prune,
    ),
    Verb(
        name="alive",
        help="Tell from its heartbeat file whether a worker lives; asks no database. Exit 1 if it does not.",
        add_arguments=_add_alive,
        run=_alive,
    ),
    Verb(
        name="groups",
        help="Make the groups Jobs: viewer, Jobs: operator and Jobs: lead for the admin; takes nothing away.",
        add_arguments=add_groups,
        run=run_groups,
    ),
    Verb(
        name="crashtest",
        help="Hit a job at every point that it comes to, on a scratch database; exit 1 with what it does not survive.",
        add_arguments=add_crashtest,
        run=run_crashtest,
    ),
    Verb(name="work", help="Run a worker; the same as runworker.", add_arguments=add_worker_arguments, run=_work),
)
