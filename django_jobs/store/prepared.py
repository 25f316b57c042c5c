"""A cursor whose statements the server plans once per connection, and the client parses once per process."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cache
from typing import Any

import psycopg

ONLY_WHEN_ASKED = 2**31
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")
_ITEMS: dict[type, Callable[[Any], str]] = {
    bool: lambda item: "t" if item else "f",
    datetime: lambda item: f'"{item.isoformat()}"',
    float: repr,
    int: str,
    str: lambda item: '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"',
    type(None): lambda _: "NULL",
    uuid.UUID: str,
}


class PreparedCursor(psycopg.RawCursor[Any]):
    """Binds on the server and prepares each statement; takes the same texts and named parameters as other cursors.

    The driver would look for the placeholders at each run: it remembers that of short texts only.
    """

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        """Run, with the statement kept prepared."""
        if self.connection.prepare_threshold is None:  # Django's default switches preparing off altogether
            self.connection.prepare_threshold = ONLY_WHEN_ASKED
        text, names = numbered(query)
        given = [array_text(value) if type(value) is list else value for value in map(params.__getitem__, names)]
        return super().execute(text, given, prepare=True, binary=True, **options)


@cache
def numbered(query: str) -> tuple[bytes, tuple[str, ...]]:
    """Return a text whose parameters have the server's own numbers, and the name of each in that order."""
    names: dict[str, int] = {}
    text = _PLACEHOLDER.sub(lambda found: f"${names.setdefault(found[1], len(names) + 1)}", query)
    return text.encode(), tuple(names)


def array_text(items: Iterable[Any]) -> str:
    """Spell a list as the server spells an array; each of our statements says of what type its arrays are.

    The driver finds out the type of each list anew, which for a claim costs as much as all else on the client.
    """
    return "{" + ",".join([(_ITEMS.get(type(item)) or _spelling(item))(item) for item in items]) + "}"


def _spelling(item: Any) -> Callable[[Any], str]:
    if isinstance(item, str):  # a member of an enumeration of texts
        return lambda member: _ITEMS[str](str.__str__(member))
    msg = f"A list of {type(item).__name__} is no parameter of a statement."
    raise TypeError(msg)
