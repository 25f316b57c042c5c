"""One look through everything that seems lost, row by row, so that no row stands in the way of those behind it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from django.db import connections

from django_jobs import clock, telemetry
from django_jobs.store import Abandoned, Page, abandoned, count_held
from django_jobs.worker.connection import LOST, bounded
from django_jobs.worker.rescue import PATIENCE, take_back_one

logger = logging.getLogger("django_jobs.worker")

REMIND_EVERY = 60.0  # seconds between two lines about rows that cannot be taken back


class Sweep:
    """Looks page by page and may be interrupted: the next call goes on behind the last row that was tried.

    A row that is locked (its holder is completing, or somebody else holds it) is skipped and counted, and so is one
    that raises; both are tried again by the next look, after everything behind them had its turn.
    """

    def __init__(self, using: str) -> None:
        self._using = using
        self._after = Page()
        self._page: deque[Abandoned] = deque()
        self._skipped: list[Abandoned] = []
        self._failed = 0
        self._told_at = float("-inf")

    def go_on(self, while_true: Callable[[], bool]) -> bool:
        """Look on while that is allowed; True when the look has come to its end."""
        while while_true():
            # What is left of a page is kept: where reading one takes all the time that there is, nobody would ever be
            # taken back. Whether an attempt is still lost is asked again by the statement that takes it.
            if not self._page:
                with bounded(self._using, PATIENCE):
                    self._page.extend(abandoned(using=self._using, after=self._after))
                if not self._page:
                    self._end()
                    return True
            while self._page:
                if not while_true():
                    return False
                item = self._page.popleft()
                self._after = self._after.past(item)
                self._try(item)
        return False

    def _try(self, item: Abandoned) -> None:
        try:
            if not take_back_one(item):
                self._skipped.append(item)
        except Exception as error:
            if isinstance(error, LOST) and not connections[self._using].is_usable():
                raise  # not this row: the database is away
            self._failed += 1
            if self._failed == 1 and self._may_tell():
                logger.exception("Attempt %s of job %s could not be taken back", item.number, item.job_id)

    def _end(self) -> None:
        locked = count_held(self._skipped, using=self._using) if self._skipped else 0
        if locked:
            telemetry.emit("rescue.skipped", count=locked)
        if self._failed:
            telemetry.emit("rescue.failed", count=self._failed)
        if (locked or self._failed) and self._may_tell():
            self._told_at = clock.boot_seconds()
            logger.warning(
                "%s lost attempts could not be taken back: %s are locked by somebody, %s raised an error; trying again",
                locked + self._failed,
                locked,
                self._failed,
            )
        self._after, self._skipped, self._failed = Page(), [], 0

    def _may_tell(self) -> bool:
        return clock.boot_seconds() - self._told_at >= REMIND_EVERY
