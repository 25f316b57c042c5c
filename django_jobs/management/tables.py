"""Plain aligned tables and lists for a terminal; no colours, no dependency, safe to pipe."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from django_jobs.operate.wording import visible

GAP = "  "
NEWLINE = "\n"
WIDEST = 60


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, widest: int = WIDEST) -> str:
    """Return rows under their headings, every column as wide as its widest cell, at most ``widest``."""
    cells = [[_cell(value, widest) for value in row] for row in rows]
    heads = [column.upper() for column in columns]
    widths = [max(map(_width, column)) for column in zip(heads, *cells, strict=True)]
    return "\n".join(_line(row, widths) for row in (heads, *cells))


def pairs(values: Iterable[tuple[str, object]]) -> str:
    """Return names and values, one pair a line; values are not cut."""
    listed = [(name, harmless(value)) for name, value in values]
    width = max((len(name) for name, _ in listed), default=0)
    # a further line of a value begins where its first one does: nothing stored looks like a row of its own
    further = "\n" + " " * (width + len(GAP))
    return "\n".join(f"{name.ljust(width)}{GAP}{value.replace(NEWLINE, further)}".rstrip() for name, value in listed)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return GAP.join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()


def _cell(value: object, widest: int) -> str:
    text = " ".join(harmless(value).split())
    return text if len(text) <= widest else text[: widest - 1] + "…"


def harmless(value: object) -> str:
    """Return text without control characters: what is stored must not drive the terminal."""
    return visible("-" if value is None or value == "" else str(value))


def one_line(value: object) -> str:
    """Return harmless text on one line, so that no text of a row looks like a line of the command."""
    return harmless(value).replace("\n", " ")


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)
