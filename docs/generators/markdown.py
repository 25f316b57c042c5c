"""Tables, and values as a reader writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def duration(value: timedelta) -> str:
    """Return ``90 seconds``, ``7 days`` and the like: the largest unit that gives a whole number."""
    seconds = value.total_seconds()
    for size, unit in _UNITS:
        if seconds >= size and seconds % size == 0:
            count = int(seconds // size)
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{seconds:g} seconds"


def value(given: object) -> str:
    """Return a default as a reader writes it; durations in words."""
    if isinstance(given, timedelta):
        return duration(given)
    if given is None:
        return "none"
    return f"`{given!r}`".replace("'", '"') if isinstance(given, str) else f"`{given!r}`"


def code(text: str) -> str:
    """Return text in the typewriter face."""
    return f"`{text}`"


def first_paragraph(docstring: str | None) -> str:
    """Return the first paragraph of a docstring on one line, with the roles of Python's documentation left out."""
    text = " ".join((docstring or "").strip().split("\n\n")[0].split())
    text = re.sub(r":[a-z]+:`~?([^`]*)`", lambda found: f"`{found[1].rsplit('.', 1)[-1]}`", text)
    return text.replace("``", "`")
