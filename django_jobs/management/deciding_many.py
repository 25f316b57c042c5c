"""The options of ``manage.py jobs replay`` that select many dead letters, and the verb that ends such a replay."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_jobs.management.deciding import add_operator, decide, usage
from django_jobs.management.verb import USAGE, Options, Write
from django_jobs.operate.listing import parse_since
from django_jobs.operate.replay_classes import BULK
from django_jobs.operate.replay_many import SAFE, CancelReplay, ReplayMany
from django_jobs.operate.selection import Selection, selection_from

# Option, name in the selection, help.
_FILTERS = (
    ("--queue", "queue", "this queue"),
    ("--type", "job_type", "this job type"),
    ("--dead-reason", "dead_reason", "this reason of the dead letter"),
    ("--error-fingerprint", "error_fingerprint", "this group of errors"),
    ("--error-class", "error_class", "this class of the last error"),
    ("--job-owner", "owner", "this owner of the job"),
    ("--subject", "subject", "this subject, for example order:42"),
    ("--dead-from", "dead_from", "dead since then: 2026-11-29T18:00 (UTC), or 12h, 7d"),
    ("--dead-to", "dead_to", "dead before then"),
)
# Where the parser puts what may not stand beside JOB, and beside a selection, with the option's name.
_ONLY_MANY = {"ids": "--ids", "also": "--also", "canary": "--canary", **{f"only_{n}": o for o, n, _ in _FILTERS}}
_ONLY_ONE = {"run_after": "--run-after", "span": "--in", "useful_for": "--useful-for"}


def add_selection(parser: CommandParser) -> None:
    """Offer to select many: by ids or by a filter, with pace and canary."""
    many = parser.add_argument_group("many dead letters (instead of JOB; a worker carries it out)")
    many.add_argument("--ids", nargs="+", metavar="JOB", help="These jobs, up to 500.")
    for option, name, told in _FILTERS:
        many.add_argument(option, dest=f"only_{name}", default="", metavar="VALUE", help=f"Only {told}.")
    many.add_argument(
        "--also",
        action="append",
        choices=[item.value for item in BULK if item.value not in SAFE],
        help="Replay this class too, in which something may happen twice.",
    )
    many.add_argument("--per-minute", type=int, default=60, metavar="N", help="The pace (default: %(default)s).")
    many.add_argument(
        "--canary", type=int, default=0, metavar="N", help="Replay so many first; go on when they succeeded."
    )


def check_alone(options: Options) -> None:
    """Refuse options of a selection beside a job.

    Raises:
        CommandError: There are some (code 2).
    """
    _refuse(options, _ONLY_MANY, "is for many dead letters: give it, or JOB, not both.")


def many_of(options: Options) -> ReplayMany:
    """Return the replay that the options select.

    Raises:
        CommandError: An option is for one job alone (code 2).
        OperatorError: Nothing is selected, or a value cannot be meant.
        ValueError: An id or a time is none.
    """
    _refuse(options, _ONLY_ONE, "is for one JOB.")
    return ReplayMany(
        _selection(options),
        using=options["database"],
        acknowledged=(*SAFE, *(options["also"] or ())),
        extra_attempts=options["extra_attempts"],
        per_minute=options["per_minute"],
        canary=options["canary"],
    )


def _refuse(options: Options, names: Mapping[str, str], why: str) -> None:
    for name, option in names.items():
        if options[name]:
            msg = f"{option} {why}"
            raise CommandError(msg, returncode=USAGE)


def _selection(options: Options) -> Selection:
    values: dict[str, Any] = {name: options[f"only_{name}"] for _, name, _ in _FILTERS}
    for name in ("dead_from", "dead_to"):
        if values[name]:
            values[name] = parse_since(values[name], using=options["database"])
    if options["ids"]:
        return Selection(
            ids=[uuid.UUID(item) for item in options["ids"]], **{name: value for name, value in values.items() if value}
        )
    return selection_from(values)


def add_cancel(parser: CommandParser) -> None:
    """Ask for a replay request, and for who decides."""
    parser.add_argument("request", metavar="REQUEST", help="The id of the replay request.")
    add_operator(parser)


def cancel(options: Options, write: Write) -> int:
    """Print the plan of ending a replay request, or end it."""
    return decide(usage(lambda: CancelReplay(uuid.UUID(options["request"]), using=options["database"])), options, write)
