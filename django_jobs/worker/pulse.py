"""What the supervisor tells about its worker without a database: whether it is blind, and the heartbeat file."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from django_jobs import clock, telemetry
from django_jobs.conf import get_settings
from django_jobs.worker.blind import Sight
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.heartbeat_file import WRITE_EVERY, ChildVitals, Told, Vitals, remove, write
from django_jobs.worker.link import ParentEnd

logger = logging.getLogger("django_jobs.worker")

REMIND_EVERY = 60.0  # seconds between two lines about a file that cannot be written
POLLS = 3  # a loop that did not go round for so many of the longest idle times stands still


class Beating(Protocol):
    """What is asked of the heart."""

    beat_at: float | None
    turned_at: float


Children = Iterable[tuple[int, int, ParentEnd]]  # number, process id, line


class Pulse:
    """Looks at the heart and the children each time round the supervisor's loop; never waits and never raises."""

    def __init__(self, config: WorkerConfig) -> None:
        rules = get_settings()
        self._config = config
        self._path = Path(config.heartbeat_file) if config.heartbeat_file else None
        self._stuck_after = max(rules.stuck_after.total_seconds(), POLLS * config.poll)
        self._write_at = 0.0
        self._told_state = ""
        self._told_at = float("-inf")
        self._worked = False
        self._contact_at: float | None = None
        self._last: tuple[Vitals, float] | None = None
        self._sight = Sight(worker=config.name, database=config.database, after=rules.blind_limit.total_seconds())

    @property
    def is_blind(self) -> bool:
        """Whether the worker is blind now."""
        return self._sight.is_blind

    def turn(self, heart: Beating, children: Children, *, stopping: bool) -> None:
        """Judge the sight and write the file if it is time."""
        try:
            self._turn(heart, list(children), stopping=stopping)
        except Exception as error:  # noqa: BLE001  telling how the worker is must never end it
            self._tell_failure(error)

    def last(self) -> Told | None:
        """Return what was seen at the last turn and how long ago that was; None before the first. For any thread."""
        if self._last is None:
            return None
        vitals, at = self._last
        return Told(vitals=vitals, age=clock.boot_seconds() - at)

    def end(self) -> None:
        """Remove the file: this worker has ended in good order."""
        if self._path is not None:
            remove(self._path)

    def _turn(self, heart: Beating, children: list[tuple[int, int, ParentEnd]], *, stopping: bool) -> None:
        failing = {child: line.well_at for child, _, line in children if line.failing}
        self._sight.look(beat_at=heart.beat_at, failing=failing)
        contacts = (self._contact_at, heart.beat_at, *(line.contact_at for _, _, line in children))
        self._contact_at = max((at for at in contacts if at is not None), default=None)
        self._worked = self._worked or any(line.was_ready for _, _, line in children)
        state = self._state(stopping=stopping)
        now = clock.boot_seconds()
        vitals = self._vitals(heart, children, state=state, now=now)
        self._last = (vitals, now)
        if self._path is None or (now < self._write_at and state == self._told_state):
            return
        self._write_at, self._told_state = now + WRITE_EVERY, state
        write(self._path, vitals)

    def _state(self, *, stopping: bool) -> str:
        if stopping:
            return "stopping"
        if self._sight.is_blind:
            return "blind"
        return "working" if self._worked else "starting"

    def _vitals(self, heart: Beating, children: list[tuple[int, int, ParentEnd]], *, state: str, now: float) -> Vitals:
        return Vitals(
            pid=os.getpid(),
            worker_id=self._config.worker_id,
            name=self._config.name,
            database=self._config.database,
            state=state,
            blind=self._sight.is_blind,
            why_blind=self._sight.why,
            blind_after=self._sight.after,
            stuck_after=self._stuck_after,
            processes=self._config.processes,
            contact_ago=None if self._contact_at is None else round(now - self._contact_at, 3),
            beat_ago=None if heart.beat_at is None else round(now - heart.beat_at, 3),
            heart_turned_ago=round(now - heart.turned_at, 3),
            children=tuple(
                ChildVitals(child=child, pid=pid, ready=line.was_ready, turned_ago=round(now - line.turned_at, 3))
                for child, pid, line in children
            ),
        )

    def _tell_failure(self, error: Exception) -> None:
        telemetry.emit("loop.failed", loop="heartbeat_file", error=type(error).__name__)
        now = clock.boot_seconds()
        if now - self._told_at >= REMIND_EVERY:
            self._told_at = now
            logger.error("The heartbeat file %s could not be written (%s); trying again", self._path, error)
