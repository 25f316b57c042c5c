"""``manage.py jobs prune``: its options, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_jobs.domain.states import Pruning
from django_jobs.exceptions import DefinitionError
from django_jobs.management.numbers import at_least_one, seconds
from django_jobs.operate.prune import BATCH, WHY_EVENT_KEPT, WHY_KEPT, Pruned, prune, taken_text
from django_jobs.operate.wording import counted


def run_prune(options: dict[str, Any], write: Callable[[str], object]) -> int:
    """Prune, and say what was taken and what was kept."""
    try:
        found = prune(
            using=options["database"],
            batch=options["batch"],
            max_seconds=options["max_seconds"],
            dry_run=options["dry_run"],
        )
    except DefinitionError as error:
        raise CommandError(str(error), returncode=2) from None
    write(json.dumps(asdict(found)) if options["json"] else "\n".join(_pruned_lines(found)))
    return 0


def add_prune(parser: CommandParser) -> None:
    """Add the options of ``jobs prune``."""
    parser.add_argument("--dry-run", action="store_true", help="Say what would be taken, and take nothing.")
    parser.add_argument(
        "--batch",
        type=at_least_one,
        default=BATCH,
        help="Jobs (or events, or messages) in one transaction (default: %(default)s).",
    )
    parser.add_argument(
        "--max-seconds",
        type=seconds,
        metavar="SECONDS",
        help="Stop after the batch that is under way then; the next run goes on (default: until all is done).",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON for programs.")


def _pruned_lines(found: Pruned) -> Iterator[str]:
    taken = [taken_text(kind, getattr(found, kind)) for kind in Pruning]
    if not found.dry_run:
        taken += [counted(found.duplicates, "old duplicate"), counted(found.workers, "old worker")]
        taken += [counted(found.ticks, "old tick"), counted(found.chains, "old chain")]
        taken.append(counted(found.batches, "old batch", "old batches"))
    verb = "Would remove" if found.dry_run else "Removed"
    yield f"{verb} {', '.join(taken)} in database {found.database!r}, in {found.seconds:.2f} s."
    for why, many in sorted(found.kept.items()):
        yield f"Kept {counted(many, 'old job')}: {WHY_KEPT[why]}."
    for why, many in sorted(found.kept_events.items()):
        yield f"Kept {counted(many, 'old event')}: {WHY_EVENT_KEPT[why]}."
    if not found.complete:
        yield "The time was up before everything was looked at; run it again."
