"""The verb that runs the crash matrix, which is the test kit's."""

from __future__ import annotations

import importlib

from django.core.management.base import CommandParser

from django_jobs.management.verb import Options, Write

KINDS = "kill,lost_commit,zombie,redeliver"


def add_crashtest(parser: CommandParser) -> None:
    """Offer the job, its faults and what to look at."""
    parser.add_argument("job_type", metavar="TYPE", help="The stored name of the job type.")
    parser.add_argument(
        "--payload", default="{}", metavar="JSON", help="Its arguments as a JSON object (default: none)."
    )
    parser.add_argument("--key", default=None, help="Its idempotency key (default: what the job type declares).")
    parser.add_argument("--kinds", default=KINDS, help=f"Kinds of faults, by commas (default: {KINDS}).")
    parser.add_argument("--points", default="reached", help="Points, by commas (default: all that the job comes to).")
    parser.add_argument("--effects", default="", metavar="CALLABLE", help="Dotted name: counts effects in the world.")
    parser.add_argument("--expect", type=int, default=None, help="How many effects (default: as without a fault).")
    parser.add_argument(
        "--setup", default="", metavar="CALLABLE", help="Dotted name: makes the rows that the job needs."
    )
    parser.add_argument("--reset", default="", metavar="CALLABLE", help="Dotted name: empties what no rollback does.")
    parser.add_argument("--may-review", action="store_true", help="A job may be left to a person.")
    parser.add_argument("--may-fail", action="store_true", help="A job may end without success.")
    parser.add_argument(
        "--may-vary", default="", metavar="COLUMNS", help="Columns, as table.column, that may differ, by commas."
    )


def run_crashtest(options: Options, write: Write) -> int:
    """Run the matrix, and print its table; 1 if something is wrong."""
    kit = importlib.import_module("django_jobs.testing.crashtest")  # by name: no other command needs what is for tests
    code: int = kit.run(options, write)
    return code
