"""A process of its own that is hit: ``python -m tests.crash.program receive N | once N | jobs VERB ...``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> None:
    """Arm what the environment names, and do what the arguments say."""
    import django

    django.setup()
    from django_jobs.faults.arming import arm_from_environment
    from tests.crash import outbox_handlers  # noqa: F401  declares what comes

    arm_from_environment(supervisor=os.getpid())
    if arguments[0] == "jobs":
        from django.core.management import execute_from_command_line

        execute_from_command_line(["manage.py", *arguments])
        return
    from tests.crash.acts import received, taken_once

    {"receive": received, "once": taken_once}[arguments[0]](int(arguments[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
