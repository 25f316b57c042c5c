"""The only door for instrumentation: rooms tell events, receivers make logs, metrics and alerts of them.

An event is a dotted name (``job.succeed``, ``lease.refused``) and plain fields. A receiver that fails never harms a
job: its error is logged once per event name and swallowed.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping

Receiver = Callable[[str, dict[str, object]], None]

logger = logging.getLogger("django_jobs.telemetry")

_receivers: list[Receiver] = []
_failed: set[str] = set()
_lock = threading.Lock()
counts: Counter[str] = Counter()
# What is known about the attempt whose handler runs in this context: for log lines that the handler itself writes.
attempt_facts: contextvars.ContextVar[Mapping[str, object] | None] = contextvars.ContextVar(
    "django_jobs_attempt_facts", default=None
)


def subscribe(receiver: Receiver) -> Callable[[], None]:
    """Call ``receiver(event, fields)`` for each event from now on; the returned function ends that, once or more."""
    _receivers.append(receiver)

    def unsubscribe() -> None:
        with contextlib.suppress(ValueError):
            _receivers.remove(receiver)

    return unsubscribe


def emit(event: str, **fields: object) -> None:
    """Tell one event. Counts it in ``counts`` (per process) and hands it to every receiver."""
    with _lock:
        counts[event] += 1
    for receiver in tuple(_receivers):  # a receiver may end itself
        try:
            receiver(event, fields)
        except BaseException as error:
            if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
                raise  # there it is the wish of a person or of a signal handler to end the program
            if event not in _failed:
                _failed.add(event)
                logger.exception("A telemetry receiver failed on %s; later failures on it are not logged", event)
