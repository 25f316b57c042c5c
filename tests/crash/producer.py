"""A producer as a process of its own: ``python -m tests.crash.producer N [atomic]`` stores a job, and a row with it."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext


def main(n: int, *, atomic: bool) -> None:
    """Enqueue once; in a transaction with a business row, or alone."""
    import django

    django.setup()
    from django.db import transaction

    from django_jobs.faults.arming import arm_from_environment
    from tests.acceptance.handlers import insert_row
    from tests.crash.handlers import keyed

    arm_from_environment(supervisor=os.getpid())
    with transaction.atomic() if atomic else nullcontext():
        if atomic:
            insert_row(n)
        keyed.enqueue(n=n)


if __name__ == "__main__":
    main(int(sys.argv[1]), atomic="atomic" in sys.argv)
