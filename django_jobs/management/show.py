"""Everything that is stored about one job, as tables for a terminal."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django_jobs.management.tables import pairs, table
from django_jobs.operate.wording import LOSS

Shown = Mapping[str, Any]

_ATTEMPT = (
    "number",
    "generation",
    "outcome",
    "worker_name",
    "worker_child",
    "code_version",
    "started_at",
    "finished_at",
    "error_class",
    "error_type",
)
_SEND = (
    "number",
    "epoch",
    "fence",
    "job_id",
    "started_at",
    "settled_at",
    "outcome",
    "status",
    "provider_request_id",
    "provider_key",
    "reason",
)
_RECONCILIATION = ("created_at", "verdict", "is_final", "provider_ref", "attempt_id", "actor", "evidence")
_COMPENSATION = ("created_at", "job_id", "outcome", "closed_at", "action_id")
_EFFECT_HIDDEN = {"sends", "reconciliations", "adoptions", "compensations"}


def show_text(shown: Shown) -> str:
    """Write what :func:`django_jobs.operate.history.as_dict` returned for people."""
    return "\n\n".join(_parts(shown))


def _parts(shown: Shown) -> Iterator[str]:
    yield _fields("Job", shown["job"])
    yield (
        _fields("Payload", shown["payload"])
        if shown["payload"]
        else f"PAYLOAD\n{shown['content_removed'] or 'missing'}"
    )
    if shown["key"]:
        yield _fields("Idempotency key", shown["key"])
    if shown["takes_back"]:
        yield _fields("Takes back", shown["takes_back"])
    if shown["attempts"]:
        yield f"ATTEMPTS\n{table([*_ATTEMPT, 'note'], map(_attempt, shown['attempts']))}"
        yield from _tracebacks(shown["attempts"])
    for effect in shown["effects"]:
        yield from _effect("Effect", effect)
    for effect in shown["adopted"]:
        yield from _effect("Adopted effect", effect)
    yield from _rows("Steps", shown["steps"], ("name", "fence", "created_at", "result"))
    yield from _rows("Cancel requests", shown["cancel_requests"], ("created_at", "generation", "fate", "told"))
    yield from _rows(
        "Decisions",
        shown.get("decisions", ()),
        ("created_at", "action", "from_generation", "actor", "owner", "reason_code", "reason", "ticket", "request_id"),
    )
    yield from _rows("Duplicates", shown["duplicates"], ("created_at", "outcome", "id"))


def _fields(title: str, values: Shown) -> str:
    return f"{title.upper()}\n" + pairs(
        (name, _text(value)) for name, value in values.items() if name not in _EFFECT_HIDDEN
    )


def _rows(title: str, rows: Sequence[Shown], columns: Sequence[str]) -> Iterator[str]:
    if rows:
        yield f"{title.upper()}\n{table(columns, ([_text(row[column]) for column in columns] for row in rows))}"


def _attempt(attempt: Shown) -> list[object]:
    values: list[object] = [_text(attempt[column]) for column in _ATTEMPT]
    notes = [attempt["message"]]
    if attempt["outcome"] is None:
        values[_ATTEMPT.index("outcome")] = "open"
    if attempt["outcome"] == "lost":
        notes = [LOSS, attempt["loss_cause"]]
    if attempt["over_budget"]:
        notes.append("past its budget")
    if attempt["refused_count"]:
        notes.append(f"late writes refused: {attempt['refused_count']}")
    return [*values, "; ".join(filter(None, notes))]


def _tracebacks(attempts: Iterable[Shown]) -> Iterator[str]:
    for attempt in attempts:
        if attempt["traceback"]:
            yield f"TRACEBACK OF ATTEMPT {attempt['number']}\n{textwrap.indent(attempt['traceback'].rstrip(), '  ')}"


def _effect(title: str, effect: Shown) -> Iterator[str]:
    yield _fields(f"{title} {' '.join(effect['name'].split())}", effect)
    yield from _rows("Sends", effect["sends"], _SEND)
    yield from _rows("Reconciliations", effect["reconciliations"], _RECONCILIATION)
    yield from _rows("Adoptions", effect["adoptions"], ("job_id", "attempt_id", "created_at"))
    yield from _rows("Compensations", effect["compensations"], _COMPENSATION)


def _text(value: Any) -> str:
    """Write a value so that a missing one, an empty text and JSON can be told apart from plain text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
