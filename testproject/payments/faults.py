"""Scripted faults per order, and the holds that two of them use. Kept in memory: a restart forgets them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from testproject.payments.rules import RefusalError, read_order_id

TIMES_LIMIT = 1_000_000
SECONDS_LIMIT = 3600


class FaultName(StrEnum):
    """What goes wrong on purpose; "applied" says whether the money moves all the same."""

    DROP_REQUEST = "drop_request"
    """Closes the socket without applying."""
    DROP_RESPONSE = "drop_response"
    """Applies, then closes the socket without an answer."""
    HOLD_BEFORE_APPLY = "hold_before_apply"
    """Blocks until released (or `seconds`), then applies and answers."""
    HOLD_AFTER_APPLY = "hold_after_apply"
    """Applies, then blocks the answer until released (or `seconds`)."""
    RATE_LIMITED = "rate_limited"
    """429 with Retry-After: `seconds` (default 1); not applied."""
    SERVER_ERROR = "server_error"
    """500; not applied."""
    SERVER_ERROR_APPLIED = "server_error_applied"
    """Applies, then answers 500; the key remembers the success."""
    DECLINED = "declined"
    """402 card_declined; recorded, and replayed for the same key."""
    MALFORMED = "malformed"
    """Applies, then answers 200 with a body that is no JSON."""
    LATE = "late"
    """Closes the socket at once and applies `seconds` (default 1) later, or when released."""


class ForgottenError(Exception):
    """The provider was reset or stopped while the request was under way: it must change nothing any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault that one request will take."""

    name: FaultName
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A checked request to script a fault for the next `times` requests of an order."""

    order_id: int
    fault: Fault
    times: int


def read_script(body: dict[str, Any]) -> Script:
    """Return the script that a control request asks for, or refuse it with 422."""
    times = body.get("times", 1)
    if isinstance(times, bool) or not isinstance(times, int) or not 0 < times <= TIMES_LIMIT:
        raise RefusalError(422, "invalid_times", f"times has to be a whole number from 1 to {TIMES_LIMIT}.")
    seconds = body.get("seconds")
    if seconds is not None and (
        isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= SECONDS_LIMIT
    ):
        raise RefusalError(422, "invalid_seconds", f"seconds has to be a number from 0 to {SECONDS_LIMIT}, or null.")
    try:
        name = FaultName(body.get("fault"))  # type: ignore[arg-type]  # the lookup itself is the check
    except ValueError as error:
        raise RefusalError(422, "unknown_fault", f"fault has to be one of {', '.join(FaultName)}.") from error
    return Script(order_id=read_order_id(body.get("order_id")), fault=Fault(name=name, seconds=seconds), times=times)


class FaultBook:
    """The faults that wait for their request: first scripted, first taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, deque[Fault]] = {}

    def add(self, script: Script) -> None:
        """Put a fault behind those that the order already waits for."""
        with self._lock:
            self._waiting.setdefault(script.order_id, deque()).extend([script.fault] * script.times)

    def take(self, order_id: int) -> Fault | None:
        """Take the order's next fault away, or return None."""
        with self._lock:
            waiting = self._waiting.get(order_id)
            return waiting.popleft() if waiting else None

    def pending(self) -> dict[str, list[str]]:
        """Return the names of the faults that no request has taken yet, by order."""
        with self._lock:
            names = {
                str(order_id): [fault.name.value for fault in faults] for order_id, faults in self._waiting.items()
            }
        return {order_id: waiting for order_id, waiting in names.items() if waiting}

    def clear(self) -> None:
        """Forget every fault."""
        with self._lock:
            self._waiting.clear()


class Holds:
    """Requests that stand still until their order is released."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._releases: dict[int, int] = {}
        self._held: dict[int, int] = {}
        self._era = 0

    def wait(self, order_id: int, *, seconds: float | None, on_held: Callable[[], None]) -> None:
        """
        Stand still until a release of the order, or for `seconds` (None: no limit).

        `on_held` is called once a release would be heard. Raises ForgottenError after a reset or stop.
        """
        with self._changed:
            era, ticket = self._era, self._releases.get(order_id, 0)
            self._held[order_id] = self._held.get(order_id, 0) + 1
            try:
                on_held()
                self._changed.wait_for(
                    lambda: self._era != era or self._releases.get(order_id, 0) != ticket, timeout=seconds
                )
            finally:
                self._held[order_id] -= 1
            if self._era != era:
                raise ForgottenError

    def release(self, order_id: int) -> int:
        """Let every held request of the order go on and return how many there were."""
        with self._changed:
            self._releases[order_id] = self._releases.get(order_id, 0) + 1
            self._changed.notify_all()
            return self._held.get(order_id, 0)

    def abandon(self) -> None:
        """Wake every held request with ForgottenError."""
        with self._changed:
            self._era += 1
            self._changed.notify_all()
