"""``manage.py jobs crashtest``: the crash matrix of one job type from the command line, on a scratch database."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import connections
from django.test.utils import setup_databases, setup_test_environment, teardown_databases, teardown_test_environment
from django.utils.module_loading import import_string

from django_jobs.define import registry
from django_jobs.exceptions import JobsError
from django_jobs.faults.arming import is_test_run
from django_jobs.testing.kit import JobsKit
from django_jobs.testing.matrix import CrashMatrix

USAGE = 2
Options = dict[str, Any]


def run(options: Options, write: Callable[[str], object]) -> int:
    """Run the matrix, and print its table; 1 if something is wrong.

    Raises:
        CommandError: It must not run here, or what is asked for does not exist (code 2).
    """
    if not (settings.DEBUG or is_test_run()):
        msg = (
            "crashtest breaks its own connections on purpose and runs handlers again and again: their requests to "
            "others would be real ones. It runs with DEBUG and in test runs only."
        )
        raise CommandError(msg, returncode=USAGE)
    try:
        handler = registry.get(options["job_type"])
        payload = handler.definition.restore(_object(options["payload"]))
        given = {name: _callable(options[name]) for name in ("effects", "setup", "reset")}
        with _scratch(options["database"]) as databases, JobsKit(using=options["database"]) as jobs:
            report = CrashMatrix(jobs, databases=databases).run(
                handler=handler,
                payload=payload,
                key=options["key"],
                expect=options["expect"],
                kinds=options["kinds"].split(","),
                points=options["points"] if options["points"] == "reached" else options["points"].split(","),
                may_review=options["may_review"],
                may_fail=options["may_fail"],
                may_vary=options["may_vary"].split(","),
                **given,
            )
    except (JobsError, ValueError, TypeError, ImportError) as error:
        raise CommandError(str(error), returncode=USAGE) from error
    if report.cells:
        write(report.table)
    write(report.text)
    return 1 if report.failures or not report.cells else 0


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        msg = f"--payload is not JSON: {error}."
        raise ValueError(msg) from error
    if not isinstance(found, dict):
        msg = f"--payload takes a JSON object with the arguments' names, not {text}."
        raise TypeError(msg)
    return found


def _callable(name: str) -> Callable[[], Any] | None:
    return import_string(name) if name else None


@contextmanager
def _scratch(using: str) -> Iterator[tuple[str, ...] | None]:
    """Make a database of this run's own beside the project's, and remove it; inside a test, take the test's.

    Yields:
        The aliases to look at: no real database is opened to count rows in it. None inside a test.
    """
    from django.core import mail

    if hasattr(mail, "outbox"):
        yield None
        return
    with ExitStack() as stack:
        setup_test_environment()
        stack.callback(teardown_test_environment)
        for connection in connections.all():
            scratch: dict[str, Any] = dict(connection.settings_dict.get("TEST") or {})
            if connection.vendor != "sqlite":
                scratch["NAME"] = f"crashtest_{os.getpid()}_{connection.alias}"
            connection.settings_dict["TEST"] = {**connection.settings_dict["TEST"], **scratch}
        made = setup_databases(verbosity=0, interactive=False, aliases={using: False})
        stack.callback(teardown_databases, made, 0)
        yield (using,)
