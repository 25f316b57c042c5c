"""``manage.py jobs <verb>``: look at jobs, explain them, verify the rows, prune, and run a worker."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connections, router

from django_jobs.management.verb import USAGE, check_texts
from django_jobs.management.verbs import VERBS
from django_jobs.models import Job
from django_jobs.operate.wording import visible


class Command(BaseCommand):
    """One command with verbs.

    Exit codes: 0 done, 1 something was found or failed, 2 usage; ``work`` has those of runworker.
    """

    help = "Look at jobs, remove old ones, and run workers."
    # Looking must work just when something is wrong; doctor prints the checks, and work runs them.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add a parser per verb."""
        verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
        for verb in VERBS:
            own = verbs.add_parser(verb.name, help=verb.help, description=verb.help)
            verb.add_arguments(own)
            if verb.name != "work":  # it has this option already
                own.add_argument(
                    "--database", default="", help="Database alias (default: where the router writes jobs)."
                )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the verb."""
        check_texts(options)
        verb = next(item for item in VERBS if item.name == options["verb"])
        options["database"] = alias = options["database"] or router.db_for_write(Job)
        if alias not in connections:
            msg = f"There is no database {alias!r} in DATABASES."
            raise CommandError(msg, returncode=USAGE)
        if verb.name == "work":
            self.check()
        try:
            code = verb.run(options, self._write)
        except DatabaseError as error:
            msg = f"Database {alias!r} cannot be read: {str(error).strip()}. Is it running and migrated?"
            raise CommandError(msg) from error
        if code:
            sys.exit(code)

    def _write(self, text: str) -> None:
        """Write what a verb says; whatever stands in the rows, nothing drives the terminal."""
        self.stdout.write(visible(text))
