"""Log lines for machines: a constant name as the message, the data in ``extra``; and the attempt in a handler's lines.

Imports no model, so that ``LOGGING`` can name :class:`JobContextFilter` before the apps are loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django_jobs import telemetry
from django_jobs.domain.lines import one_line

# Which logger and level an event of telemetry has; what is not here is not logged by this room. The end of a child
# and the loss of an attempt are told in words by the worker; here they are for programs only.
_ATTEMPT = logging.getLogger("django_jobs.attempt")
_LEASE = logging.getLogger("django_jobs.lease")
_OUTBOX = logging.getLogger("django_jobs.outbox")
_EFFECT = logging.getLogger("django_jobs.effect")
_OPERATOR = logging.getLogger("django_jobs.operator")
_MAINTENANCE = logging.getLogger("django_jobs.maintenance")
_WORKER = logging.getLogger("django_jobs.worker")

_LINES: dict[str, tuple[logging.Logger, int, str]] = {
    "attempt.started": (_ATTEMPT, logging.INFO, "attempt.started"),
    "job.rescue": (_LEASE, logging.INFO, "lease.lost"),
    "lease.refused": (_LEASE, logging.WARNING, "write.fenced"),
    "job.renew": (_LEASE, logging.DEBUG, "lease.renewed"),
    "job.expire": (_MAINTENANCE, logging.ERROR, "job.dead_lettered"),
    "effect.send": (_EFFECT, logging.INFO, "effect.sent"),
    "effect.confirmed": (_EFFECT, logging.INFO, "effect.confirmed"),
    "effect.rejected": (_EFFECT, logging.INFO, "effect.rejected"),
    "effect.unknown": (_EFFECT, logging.ERROR, "effect.ambiguous"),
    "effect.adopted": (_EFFECT, logging.INFO, "effect.adopted"),
    "effect.reconciled": (_EFFECT, logging.INFO, "effect.reconciled"),
    "effect.review": (_EFFECT, logging.ERROR, "effect.needs_review"),
    "effect.abandoned": (_EFFECT, logging.WARNING, "effect.abandoned"),
    "pause.set": (_OPERATOR, logging.INFO, "operator.pause"),
    "pause.ended": (_OPERATOR, logging.INFO, "operator.resume"),
    "child.ended": (_WORKER, logging.INFO, "child.ended"),
    "transaction.long": (_WORKER, logging.WARNING, "transaction.long"),
}
_ENDS: dict[str, tuple[int, str]] = {
    "retry": (logging.WARNING, "attempt.retry"),
    "dead_lettered": (logging.ERROR, "job.dead_lettered"),
    "lost": (logging.INFO, "attempt.lost"),
}
_QUIET = frozenset({"job.claim", "job.enqueue", "job.succeed", "attempt.done", "claim.made"})  # the busiest: no line
_RENAMED = {
    "queue_name": "queue", "number": "attempt", "name": "subject_name", "reason": "why", "seconds": "duration_s",
}  # fmt: skip
_HIDDEN = frozenset({"reason", "message"})  # words of people and of providers; the rows have them
_RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def log(event: str, fields: Mapping[str, Any]) -> None:
    """Write the line of an event of telemetry, if it has one."""
    if event in _QUIET:
        return
    if event == "attempt.ended":
        level, message = _ENDS.get(str(fields["outcome"]), (logging.INFO, "attempt.ended"))
        if fields.get("dead_reason"):
            level, message = _ENDS["dead_lettered"]
        logger = _ATTEMPT
    elif event.startswith("prune."):
        logger, level, message = _MAINTENANCE, logging.INFO, event
    elif event.startswith("operator."):
        logger, level, message = _OPERATOR, logging.INFO, event
    elif event.startswith(("delivery.", "outbox.")):
        logger, level, message = _OUTBOX, logging.INFO, event
    else:
        line = _LINES.get(event)
        if line is None:
            return
        logger, level, message = line
    if logger.isEnabledFor(level):
        logger.log(level, message, extra={"event": message, **extra_of(fields)})


def extra_of(fields: Mapping[str, Any]) -> dict[str, object]:
    """Return the fields of an event as attributes of a log record: plain values, units in the names, no free text."""
    found: dict[str, object] = {}
    for name, value in fields.items():
        if name in _HIDDEN or value is None or value == "":
            continue
        shown = _RENAMED.get(name, name)
        if isinstance(value, timedelta):
            found[f"{shown}_s"] = round(value.total_seconds(), 6)
        elif shown not in _RESERVED:
            found[shown] = value if isinstance(value, int | float | bool) else one_line(value)
    return found


class JobContextFilter(logging.Filter):
    """Adds what is known about the running attempt to every record of a handler's own loggers.

    The attributes are ``job_id``, ``job_type``, ``queue``, ``attempt``, ``worker``, ``code_version``,
    ``correlation_id``; outside of a job they are empty, so that a format string may name them. It lets every record
    pass, and never replaces an attribute that is there. Threads that a handler starts do not inherit the context.
    """

    names = ("job_id", "job_type", "queue", "attempt", "worker", "code_version", "correlation_id")

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes."""
        facts = telemetry.attempt_facts.get()
        known = extra_of(facts) if facts else {}
        for name in self.names:
            if not hasattr(record, name):
                setattr(record, name, known.get(name, ""))
        return True
