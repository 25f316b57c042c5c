"""``jobs verify``: the rows against the invariants, for people and for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_jobs.management.numbers import seconds
from django_jobs.management.verb import USAGE, Options, Verb, Write, add_json, as_json
from django_jobs.operate.prune import taken_text
from django_jobs.operate.verify import PATIENCE, Report, verify
from django_jobs.operate.wording import counted

FOUND = 1
_IDS_SHOWN = 20


def _add_verify(parser: CommandParser) -> None:
    parser.add_argument(
        "--patience",
        type=seconds,
        default=PATIENCE.total_seconds(),
        metavar="SECONDS",
        help="How long a lease may be over before L1 or L2 names its holder (default: %(default)s).",
    )
    parser.add_argument(
        "--canaries",
        default="",
        metavar="PATH",
        help="Look for each line of this file in every text column but content; - reads standard input.",
    )
    add_json(parser)


def _verify(options: Options, write: Write) -> int:
    patience = timedelta(seconds=options["patience"])
    try:
        report = verify(using=options["database"], patience=patience, canaries=_canaries(options["canaries"]))
    except ValueError as error:
        raise CommandError(str(error), returncode=USAGE) from None
    write(as_json(_report_dict(report)) if options["json"] else "\n".join(_report_lines(report)))
    return 0 if report.clean else FOUND


def _canaries(path: str) -> list[str]:
    """Read the texts from a file: on a command line they would stand in the list of processes."""
    if not path:
        return []
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"The canaries cannot be read from {path!r}: {error}"
        raise CommandError(msg, returncode=USAGE) from None
    return [line for line in text.splitlines() if line.strip()]


def _report_dict(report: Report) -> dict[str, Any]:
    return {
        "database": report.database,
        "clean": report.clean,
        "seconds": round(report.seconds, 3),
        "patience_seconds": report.patience.total_seconds(),
        "pruned": [{"kind": item.kind, "rows": item.rows, "batches": item.batches} for item in report.pruned],
        "canaries": report.canaries,
        "leaks": [{"table": leak.table, "column": leak.column, "rows": list(leak.rows)} for leak in report.leaks],
        "invariants": [
            {
                "name": item.invariant.name,
                "meaning": item.invariant.meaning,
                "about": item.invariant.about,
                "violated_by": list(item.ids),
            }
            for item in report.checked
        ],
    }


def _report_lines(report: Report) -> Iterator[str]:
    for item in report.checked:
        verdict = "ok" if item.holds else "VIOLATED"
        yield f"{item.invariant.name:<4} {verdict:<8}  {item.invariant.meaning}"
        yield from _listed(item.invariant.about, item.ids)
    for leak in report.leaks:
        yield f"LEAK          a canary stands in {leak.table}.{leak.column}"
        yield from _listed("row", leak.rows)
    held = len(report.checked) - len(report.violated)
    yield (
        f"{held} of {counted(len(report.checked), 'invariant')} hold in database {report.database!r}, in "
        f"{report.seconds:.2f} s. {_pruned_so_far(report)}{_canaries_so_far(report)}"
    )


def _listed(about: str, ids: tuple[str, ...]) -> Iterator[str]:
    yield from (f"       {about} {identifier}" for identifier in ids[:_IDS_SHOWN])
    if len(ids) > _IDS_SHOWN:
        yield f"       and {len(ids) - _IDS_SHOWN} more; --json prints all"


def _canaries_so_far(report: Report) -> str:
    if not report.canaries:
        return ""
    where = f"found in {counted(len(report.leaks), 'column')}" if report.leaks else "found nowhere but in content"
    return f" {counted(report.canaries, 'canary', 'canaries')}: {where}."


def _pruned_so_far(report: Report) -> str:
    if not report.pruned:
        return "Nothing has been pruned, so every row must be accounted for."
    parts = ", ".join(taken_text(item.kind, item.rows) for item in report.pruned)
    return f"Pruned before, and taken into account: {parts}."


VERIFY = Verb(
    name="verify",
    help="Check the rows against the invariants; exit 1 with the ids that violate one.",
    add_arguments=_add_verify,
    run=_verify,
)
