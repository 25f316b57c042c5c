"""A worker's look at schedules as a process of its own: ``python -m tests.crash.scheduler`` announces, or serves."""

from __future__ import annotations

import os
import sys


def main(*, announce: bool) -> None:
    """Write down what is declared, or run what is due."""
    import django

    django.setup()
    from django_jobs.faults.arming import arm_from_environment
    from django_jobs.operate.schedule_runner import announce_schedules, serve
    from tests.crash.schedules import declare

    declare()
    arm_from_environment(supervisor=os.getpid())
    if announce:
        announce_schedules(using="default")
    else:
        serve(using="default")


if __name__ == "__main__":
    main(announce="announce" in sys.argv)
