"""Whether a worker lives, and whether it is ready, for the probes of whoever runs it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from django.db import connections

from django_jobs import clock
from django_jobs.operate.alive import verdict_of
from django_jobs.operate.migrated import missing_migrations
from django_jobs.worker.heartbeat_file import Told
from django_jobs.worker.watch import watch

ANSWER_WITHIN = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class Answer:
    """What a probe is told: good or not, and why in one sentence."""

    good: bool
    text: str


def live(told: Told | None) -> Answer:
    """Judge whether the worker lives; neither a database that is away nor a long handler speaks against it."""
    if told is None:
        return Answer(True, "Alive: it is starting.")
    verdict = verdict_of(told)
    return Answer(verdict.alive, verdict.text)


class Readiness:
    """Judges whether the worker takes jobs: it works, and its database answers in time and has every migration.

    A backlog never speaks against it. One question to the database is under way at a time, in a thread of its own: a
    database that stands still holds up nobody but that thread.
    """

    def __init__(self, database: str, look: Callable[[str], list[str]] = missing_migrations) -> None:
        self._database = database
        self._look = look
        self._lock = threading.Lock()
        self._asking: _Question | None = None

    def judge(self, told: Told | None) -> Answer:
        """Answer within about a second."""
        if told is None:
            return Answer(False, "Not ready: it is starting.")
        alive = live(told)
        if not alive.good:
            return Answer(False, alive.text)
        state = told.vitals.state
        if state != "working":
            return Answer(False, f"Not ready: it is {state}.")
        wrong = self._ask()
        return Answer(False, f"Not ready: {wrong}.") if wrong else Answer(True, "Ready: it takes jobs.")

    def _ask(self) -> str:
        with self._lock:
            if self._asking is None or self._asking.done.is_set():
                self._asking = _Question(self._database, self._look)
                threading.Thread(target=self._asking.run, name="django_jobs-ready", daemon=True).start()
            question = self._asking
        left = ANSWER_WITHIN - (clock.boot_seconds() - question.asked_at)
        if not question.done.wait(max(0.0, left)):
            waited = clock.boot_seconds() - question.asked_at
            return f"database {self._database!r} has not answered for {waited:.1f} s"
        return question.wrong


class _Question:
    """One question to the database."""

    def __init__(self, database: str, look: Callable[[str], list[str]]) -> None:
        self.done = threading.Event()
        self.asked_at = clock.boot_seconds()
        self.wrong = ""
        self._database = database
        self._look = look

    def run(self) -> None:
        """Ask, and close the connection: probes are seldom."""
        try:
            with watch.over(self._database, 5 * ANSWER_WITHIN):
                missing = self._look(self._database)
            if missing:
                self.wrong = f"migration {missing[0]} of django_jobs is not applied"
        except Exception as error:  # noqa: BLE001  whatever it is, the database did not answer as it should
            self.wrong = f"database {self._database!r} does not answer ({type(error).__name__})"
        finally:
            connections.close_all()
            self.done.set()
