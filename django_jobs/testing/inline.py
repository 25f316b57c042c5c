"""Jobs that run at once when the code under test enqueues them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import connections, transaction

from django_jobs import telemetry
from django_jobs.enqueue.inside import in_transaction
from django_jobs.testing.life import current
from django_jobs.testing.reports import AttemptReport, RunReport

Drain = Callable[[], RunReport]


class Inline:
    """What ran in the block so far."""

    def __init__(self, using: str, drain: Drain) -> None:
        self._using, self._drain = using, drain
        self._attempts: list[AttemptReport] = []
        self._errors: list[BaseException] = []
        self._is_running = False

    @property
    def report(self) -> RunReport:
        """The report of all attempts."""
        return RunReport.of(self._attempts)

    def heard(self, event: str, _: dict[str, object]) -> None:
        """Run, or have it run after the commit, when a job was stored by the code under test."""
        if event != "job.enqueue" or current() is not None:  # what a handler enqueues is drained with it
            return
        if in_transaction(connections[self._using]):
            transaction.on_commit(self.run, using=self._using)
        else:
            self.run()

    def run(self) -> None:
        """Run what is due, unless that is going on."""
        if self._is_running or in_transaction(connections[self._using]):
            return
        self._is_running = True
        try:
            self._attempts += self._drain().attempts
        except BaseException as error:
            self._errors.append(error)  # telemetry, which calls this, lets no error pass
            raise
        finally:
            self._is_running = False

    def finish(self) -> None:
        """Run what still waits.

        Raises:
            BaseException: What ended a run before.
        """
        if self._errors:
            raise self._errors[0]
        self.run()


@contextmanager
def inlined(using: str, drain: Drain) -> Iterator[Inline]:
    """Listen to enqueues for the time of the block, and run in the end what still waits."""
    inline = Inline(using, drain)
    end = telemetry.subscribe(inline.heard)
    try:
        yield inline
        inline.finish()
    finally:
        end()
