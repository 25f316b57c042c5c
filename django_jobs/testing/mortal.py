"""One turn of a worker's code in a test: it can die in the middle, and then it is as silent as a killed process."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn
from unittest import mock

from django.db import connections

from django_jobs import telemetry
from django_jobs.testing.breaking import Phase
from django_jobs.testing.lending import is_closed, lent
from django_jobs.testing.life import Life, SimulatedCrash, begin, end


class Run(Life):
    """What a thread does for a worker; ``worker_id`` is the worker whose heartbeat ends with it."""

    def __init__(self, using: str) -> None:
        super().__init__()
        self.using = using
        self.worker_id: uuid.UUID | None = None
        self._after = ExitStack()

    def die(self) -> NoReturn:
        """End the process, as far as this can be done to a part of one.

        Every connection of the thread is taken away first, so that no ``finally`` and no ``except BaseException`` of
        the handler or of the worker can write; telemetry and logs are silent until the thread has unwound.

        Raises:
            SimulatedCrash: Always.
        """
        if not self.is_dead:
            self.is_dead = True
            for connection in connections.all(initialized_only=True):
                self._take(connection)
            self._after.enter_context(mock.patch.object(telemetry, "emit", _say_nothing))
            before = logging.root.manager.disable
            self._after.callback(logging.disable, before)
            logging.disable(logging.CRITICAL)
        raise SimulatedCrash

    def freeze(self) -> None:
        """Stand still for so long that the server has ended every transaction that was open."""
        for connection in connections.all(initialized_only=True):
            if getattr(connection, "is_lent", False):
                connection.freeze()  # type: ignore[attr-defined]  # a lent one has it

    def lose(self, phase: Phase, using: str) -> None:
        """Lose the line of the thread's connection at what is sent, or committed, next."""
        connections[using].lose_next(phase)  # type: ignore[attr-defined]  # what a worker uses is lent

    def end(self) -> None:
        """Let the thread speak again."""
        self._after.close()

    def _take(self, connection: Any) -> None:
        if getattr(connection, "is_lent", False):
            connection.die()
        elif not is_closed(connection):  # the handler opened it itself
            connection.close()
            self._after.enter_context(mock.patch.object(connection, "connect", _refuse))


@contextmanager
def mortal(using: str) -> Iterator[Run]:
    """Lend the connections of this thread to what runs in the block; a simulated crash ends the block and no more."""
    run = Run(using)
    with lent(using):
        begin(run)
        try:
            yield run
        except SimulatedCrash:
            if not run.is_dead:
                raise
        finally:
            end()
            run.end()


def _refuse() -> NoReturn:
    raise SimulatedCrash


def _say_nothing(*_: object, **__: object) -> None:
    """Take the place of ``telemetry.emit``: a dead process tells nothing."""
