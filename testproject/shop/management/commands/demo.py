"""`manage.py demo`: real workers charge real orders while things go wrong on purpose."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from testproject.demo.database import prepare
from testproject.demo.errors import DemoError
from testproject.demo.interruption import Interruption
from testproject.demo.plan import Fault, make_plan
from testproject.demo.run import Result, Run
from testproject.demo.table import evidence_list, table
from testproject.serving import ServerError

INTERRUPTED = 130


class Command(BaseCommand):
    """
    Run the demo. Exit codes: 0 every fault fired and every order was charged once or declined; 1 something is wrong.

    It uses the file demo.sqlite3 in the project's folder, which it makes anew, or the database of DATABASE_URL.
    """

    help = (
        "Charge more than 200 orders with real workers while processes are killed and frozen and answers get lost, "
        "then show that each order was charged once. Uses a fresh demo.sqlite3, or the database of DATABASE_URL."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument(
            "--without",
            action="append",
            default=[],
            choices=[fault.value for fault in Fault],
            help="Leave one fault out; repeatable. The run then fails, because it proves less than it promises.",
        )
        parser.add_argument(
            "--ledger",
            type=Path,
            default=None,
            metavar="FILE",
            help="Keep the provider's ledger in this new SQLite file.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run, print and set the exit code."""
        self.stdout.ending = ""  # the progress bar writes parts of lines
        try:
            with Interruption() as interruption:
                result = self._run(options, interruption)
        except KeyboardInterrupt:
            self.stderr.write("Interrupted: everything that the demo started has been stopped.")
            sys.exit(INTERRUPTED)
        except (DemoError, ServerError) as error:
            raise CommandError(str(error)) from error
        if result.reasons:
            raise CommandError("The demo failed.\n" + "\n".join(f"  - {reason}" for reason in result.reasons))

    def _run(self, options: dict[str, Any], interruption: Interruption) -> Result:
        started = time.monotonic()
        ledger: Path | None = options["ledger"]
        if ledger is not None and ledger.exists():
            raise DemoError(f"{ledger} exists already. Name a new file for the provider's ledger.")
        plan = make_plan(without=frozenset(Fault(name) for name in options["without"]))
        self.stdout.write(f"Database: {prepare(plan)}\n")
        with ExitStack() as stack:
            run = Run(plan, stream=self.stdout, stack=stack, check=interruption.check, ledger=ledger)
            result = run.carry_out()
        self._print(result, seconds=time.monotonic() - started)
        return result

    def _print(self, result: Result, *, seconds: float) -> None:
        lines = ["", *table(result.figures), "", *evidence_list(result.evidence), ""]
        if not result.reasons:
            verdict = "No order was charged twice, none is left open, and `jobs verify` is clean."
            lines.append(self.style.SUCCESS(f"{verdict} The run took {seconds:.0f} s."))
        self.stdout.write("\n".join(lines) + "\n")
