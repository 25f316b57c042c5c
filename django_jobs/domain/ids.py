"""Identifiers that sort by time: UUID version 7 of RFC 9562, strictly increasing within one process."""

from __future__ import annotations

import os
import threading
import time
import uuid
from datetime import datetime

from django_jobs.exceptions import DefinitionError

_COUNTER_BITS = 42  # 12 bits of rand_a and the upper 30 of rand_b: ids of one millisecond count up
_TAIL_BITS = 32  # random in every id, so that no id can be guessed from its neighbour
_COUNTER_LIMIT = 1 << _COUNTER_BITS


class _Generator:
    """The state behind :func:`uuid7`: the last millisecond and the counter inside it."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget the past and take a new lock: a forked child inherits both, and the lock may be held for ever."""
        self._lock = threading.Lock()
        self._millisecond = -1
        self._counter = 0

    def next(self, now: int) -> uuid.UUID:
        """Return the next id at ``now`` (Unix milliseconds); while the clock is behind, only the counter rises."""
        fresh, tail = _random_start(), int.from_bytes(os.urandom(_TAIL_BITS // 8), "big")
        with self._lock:
            if now > self._millisecond:
                self._millisecond, self._counter = now, fresh
            else:
                self._counter += 1
                if self._counter == _COUNTER_LIMIT:
                    self._millisecond, self._counter = self._millisecond + 1, fresh
            return _assemble(self._millisecond, self._counter, tail)


def _random_start() -> int:
    """Draw a counter start whose top bit is free: at least 2^41 ids fit into the rest of the millisecond."""
    return int.from_bytes(os.urandom(6), "big") >> (48 - _COUNTER_BITS + 1)


def _assemble(millisecond: int, counter: int, tail: int) -> uuid.UUID:
    rand_a, upper = counter >> 30, counter & ((1 << 30) - 1)
    value = (millisecond & ((1 << 48) - 1)) << 80
    value |= 0x7 << 76 | rand_a << 64
    value |= 0b10 << 62 | upper << _TAIL_BITS | tail
    return uuid.UUID(int=value)


_generator = _Generator()
os.register_at_fork(after_in_child=_generator.restart)


def first_id(moment: datetime) -> uuid.UUID:
    """Return the lowest id that can be made at ``moment``: what is smaller was made before."""
    return uuid.UUID(int=(max(0, int(moment.timestamp() * 1000)) & ((1 << 48) - 1)) << 80)


def uuid7() -> uuid.UUID:
    """Return a new UUIDv7, greater than every one this process made before; safe in threads and after a fork."""
    return _generator.next(time.time_ns() // 1_000_000)


def checked_id(value: object, *, what: str) -> uuid.UUID:
    """Return an id that somebody gave as a UUID or as its text; ``what`` it is of, as "job".

    Raises:
        DefinitionError: It is neither.
    """
    if isinstance(value, uuid.UUID):
        return value
    try:
        return uuid.UUID(value)  # type: ignore[arg-type]  # it refuses what is no text
    except (ValueError, AttributeError, TypeError):
        msg = f"A {what}'s id is a UUID, not {value!r}."
        raise DefinitionError(msg) from None
