"""How instants, spans of time, losses and reasons are told to people, the same everywhere."""

from __future__ import annotations

import signal
import unicodedata
from datetime import UTC, datetime, timedelta

from django_jobs.domain.states import DeadReason

LOSS = "never observed; may have succeeded"

_MINUTE, _HOUR, _DAY = 60, 3600, 86400

DEAD_REASONS: dict[str, str] = {
    DeadReason.PERMANENT: "it failed in a way that another try cannot help",
    DeadReason.PAYLOAD: "its stored arguments do not fit the handler",
    DeadReason.ATTEMPTS: "its attempts were used up",
    DeadReason.UNKNOWN_BUDGET: "it failed too often with errors of unknown class",
    DeadReason.AGE: "it was retried until it was too old",
    DeadReason.EXPIRED: "its result was worth nothing any more when it could have run",
    DeadReason.UNCHANGED: "it failed again and again with the same error",
    DeadReason.POISON: "its attempts were lost again and again, the last without company: it seems to end its process",
    DeadReason.NO_PROGRESS: "it was put off too often without getting anywhere",
    DeadReason.UNKNOWN_TYPE: "no worker knows its job type",
    DeadReason.VERSION: "no worker knows its payload version",
    DeadReason.EFFECT_REVIEW: "whether a side effect was applied cannot be found out by the program",
    DeadReason.EFFECT_OPEN: "the outcome of a side effect stayed open for too long, or stands against success",
    DeadReason.CANCELLED: "it was cancelled after a side effect may have been applied",
}


def instant(value: datetime | None) -> str:
    """Write an instant in UTC to the second, ``-`` for none."""
    return "-" if value is None else value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def duration(value: timedelta) -> str:
    """Write a span of time in at most two units: ``850 ms``, ``3.2 s``, ``5 min 3 s``, ``2 h 5 min``, ``3 d 4 h``."""
    seconds = abs(value.total_seconds())
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < _MINUTE:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    for large, small, names in ((_DAY, _HOUR, "d h"), (_HOUR, _MINUTE, "h min"), (_MINUTE, 1, "min s")):
        if seconds >= large:
            many, rest = divmod(int(seconds), large)
            first, second = names.split()
            return f"{many} {first}" + (f" {rest // small} {second}" if rest // small else "")
    return f"{seconds} s"


def relative(value: datetime, now: datetime) -> str:
    """Write an instant with its distance from now: ``2026-11-29T18:00:00Z (in 5 min)``."""
    apart = duration(value - now)
    return f"{instant(value)} ({f'in {apart}' if value > now else f'{apart} ago'})"


def exit_text(status: int | None) -> str:
    """Say how a process ended: minus a signal's number, or an exit code."""
    if status is None:
        return "its process ended"
    if status >= 0:
        return f"its process exited with code {status}"
    try:
        return f"its process was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"its process was ended by signal {-status}"


def dead_reason(reason: str) -> str:
    """Say in plain English why a job waits for a human."""
    return DEAD_REASONS.get(reason, "for a reason that this version does not know")


_LINE_ENDS = "\u2028\u2029"  # of Unicode; they are no control signs


def counted(number: int, one: str, many: str = "") -> str:
    """Write a number with its noun: ``1 job``, ``2 jobs``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def visible(text: str) -> str:
    """Return text in which what is not seen is seen: control, bidi and other unprintable signs become ``�``."""
    return "".join(sign if sign in "\n\t" or is_seen(sign) else "�" for sign in text)


def is_seen(sign: str) -> bool:
    """Say whether a sign is none that controls, hides, turns the direction or ends a line."""
    return unicodedata.category(sign)[0] != "C" and sign not in _LINE_ENDS
