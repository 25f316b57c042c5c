"""What a verb of ``manage.py jobs`` is, and what all of them share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_jobs.domain.canonical import is_storable
from django_jobs.models import Pause
from django_jobs.operate.history import plain
from django_jobs.operate.wording import is_seen

USAGE = 2
_PATHS = ("heartbeat_file", "canaries")  # a file may be called by any bytes

Write = Callable[[str], object]
Options = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One verb: ``run`` gets the options, among them ``database``, and a function that writes a line."""

    name: str
    help: str
    add_arguments: Callable[[CommandParser], None]
    run: Callable[[Options, Write], int]


def check_texts(options: Mapping[str, Any]) -> None:
    """Refuse options whose bytes are no UTF-8, as a terminal of another encoding sends them, before any SQL.

    Raises:
        CommandError: The message names the option.
    """
    for name, value in options.items():
        for text in value if isinstance(value, list | tuple) else [value]:
            if isinstance(text, str) and name not in _PATHS and not is_storable(text):
                msg = f"{name.replace('_', '-')}: {text!r} has bytes that are no UTF-8, or NUL; no row holds it."
                raise CommandError(msg, returncode=USAGE)


def as_json(value: object) -> str:
    """Write a value as one line of JSON; what drives a terminal, or cannot be seen, is written as an escape."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if text.isprintable():
        return text
    return "".join(sign if is_seen(sign) else json.dumps(sign)[1:-1] for sign in text)


def add_json(parser: CommandParser) -> None:
    """Offer ``--json``."""
    parser.add_argument("--json", action="store_true", help="Print JSON for programs.")


def json_values(value: Any) -> Any:
    """Return a value for JSON: spans of time as numbers in seconds, under names that say so."""
    if isinstance(value, Pause):
        return {name: plain(getattr(value, name)) for name in ("kind", "name", "actor", "reason", "paused_until")}
    if is_dataclass(value) and not isinstance(value, type):
        return {
            item.name + ("_seconds" if "timedelta" in str(item.type) else ""): json_values(getattr(value, item.name))
            for item in fields(value)
        }
    if isinstance(value, Mapping):
        return {_named(str(name), item): json_values(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(item) for item in value]
    return value.total_seconds() if isinstance(value, timedelta) else plain(value)


def _named(name: str, value: Any) -> str:
    return f"{name}_seconds" if isinstance(value, timedelta) else name
