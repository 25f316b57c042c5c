"""The verb that makes the groups of users for the admin."""

from __future__ import annotations

from django.apps import apps
from django.core.management.base import CommandError, CommandParser
from django.db import router

from django_jobs.management.verb import USAGE, Options, Write, add_json, as_json
from django_jobs.operate.roles import roles
from django_jobs.operate.wording import counted
from django_jobs.store.groups import grant


def add_groups(parser: CommandParser) -> None:
    """Offer ``--json``."""
    add_json(parser)


def run_groups(options: Options, write: Write) -> int:
    """Make the groups, and tell what each was given.

    Raises:
        CommandError: There are no groups of users on this site, or no permissions yet (code 2).
    """
    if not apps.is_installed("django.contrib.auth"):
        msg = "This site has no groups of users: django.contrib.auth is not among INSTALLED_APPS."
        raise CommandError(msg, returncode=USAGE)
    using = router.db_for_write(apps.get_model("auth", "Group"))
    for name, codenames in roles().items():
        try:
            given = grant(name, codenames, using=using)
        except LookupError as error:
            raise CommandError(str(error), returncode=USAGE) from None
        if options["json"]:
            write(as_json({"group": name, "permissions": sorted(codenames), "given": given}))
        elif given:
            write(f"{name}: given {counted(len(given), 'permission')}: {', '.join(given)}.")
        else:
            write(f"{name}: had all {counted(len(codenames), 'permission')} already.")
    return 0
