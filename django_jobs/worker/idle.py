"""What a child does between two claims that found nothing: look with one cheap read, ask to be notified, sleep."""

from __future__ import annotations

import random
from collections.abc import Callable

from django_jobs import clock
from django_jobs.store import notify
from django_jobs.worker.bell import BellEnd
from django_jobs.worker.claiming import Claimer
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.wake import Wake

ANNOUNCE_EVERY = notify.SLEEP_LASTS.total_seconds() * 0.4  # what others announced lasts at least for half of the time
# Seconds after the last news at which to look again. That tells how long to sleep; and a producer notifies a queue no
# more often than every 100 ms, so what it stores right after a notification comes without one.
ECHOES = (0.03, 0.13)
SHORTEST = 0.005  # seconds


class Idle:
    """The rest of one child. While its worker hears notifications, producers learn that somebody sleeps."""

    def __init__(self, config: WorkerConfig, claimer: Claimer, wake: Wake) -> None:
        self._config = config
        self._claimer = claimer
        self._wake = wake
        self._announced_at = float("-inf")
        self._news_at = clock.boot_seconds()
        self._looked_at = float("-inf")
        self._bell: BellEnd | None = None
        if config.bell >= 0:
            self._bell = BellEnd(config.bell)
            wake.watch(config.bell, self._read_bell)

    @property
    def hears(self) -> bool:
        """Whether the worker hears notifications; for any thread."""
        return self._bell is not None and self._bell.heard

    def on_events(self, wake: Callable[[], object]) -> None:
        """Call ``wake`` when the supervisor heard of events; it must not wait."""
        if self._bell is not None:
            self._bell.on_events = wake

    def _read_bell(self) -> bool:
        assert self._bell is not None  # noqa: S101  watched only if there is one
        rang = self._bell.read()
        if self._bell.over:
            self._wake.forget(self._bell.descriptor)
            self._bell.heard = False
        return rang

    def note_news(self) -> None:
        """Something happened: a claim found jobs, or somebody woke the child."""
        self._news_at = clock.boot_seconds()

    def may_find(self) -> bool:
        """Say whether a claim may find something now; one read, after a sleep that nobody ended."""
        seconds = self._claimer.seconds_to_next()
        self._looked_at = clock.boot_seconds()
        return seconds is not None and seconds <= 0

    def asks(self) -> bool:
        """Ask for notifications if they are heard and nobody was asked lately.

        Returns:
            Whether somebody was asked just now: what was stored before needs another look.
        """
        now = clock.boot_seconds()
        if not self.hears or now - self._announced_at < ANNOUNCE_EVERY:
            return False
        notify.announce_sleep(self._claimer.known_queues(), using=self._config.database)
        self._announced_at = now
        return True

    def seconds(self) -> float:
        """How long to sleep: until the next poll, until something becomes due, or until an echo of the last news."""
        now = clock.boot_seconds()
        longest = self._config.poll * (0.75 + random.random() / 4)  # noqa: S311  spreads load, guards nothing
        due = self._claimer.seconds_to_next_due()
        if due > 0:
            longest = min(longest, due)
        echo = next((after for after in ECHOES if self._news_at + after > now), None)
        if echo is not None:
            longest = min(longest, self._news_at + echo - now)
        elif self._looked_at < self._news_at:  # the claim after the news took longer than the echoes
            longest = min(longest, ECHOES[0])
            self._looked_at = now  # once: a child that may start nothing now does not look when it wakes
        return max(SHORTEST, longest)
