"""What a verb of ``manage.py jobs`` is, and what all of them share."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.core.management.base import CommandParser

USAGE = 2

Write = Callable[[str], object]
Options = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One verb: ``run`` gets the options, among them ``database``, and a function that writes a line."""

    name: str
    help: str
    add_arguments: Callable[[CommandParser], None]
    run: Callable[[Options, Write], int]


def as_json(value: object) -> str:
    """Write a value as one line of JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def add_json(parser: CommandParser) -> None:
    """Offer ``--json``."""
    parser.add_argument("--json", action="store_true", help="Print JSON for programs.")
