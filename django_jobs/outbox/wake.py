"""Waking the dispatchers of this process when an event has committed in it; others find it at their next look."""

from __future__ import annotations

from collections.abc import Callable

_listening: list[Callable[[], object]] = []


def listen(wake: Callable[[], object]) -> Callable[[], None]:
    """Call ``wake`` after each commit with events in this process; the returned function ends that."""
    _listening.append(wake)

    def end() -> None:
        if wake in _listening:
            _listening.remove(wake)

    return end


def wake_dispatchers() -> None:
    """Wake whoever listens."""
    for wake in tuple(_listening):
        wake()
