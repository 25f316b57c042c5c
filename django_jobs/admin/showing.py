"""The one way in which stored values become HTML: secrets masked, invisible signs made visible, everything escaped.

:func:`unmasked` alone leaves secrets in, for the page that is asked for with a reason.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from django_jobs import clock
from django_jobs.masking import redactor
from django_jobs.operate.wording import instant, relative, visible

SHORT = 60
LONG = 20_000
NOTHING = "-"


def plain(value: object, limit: int = LONG) -> str:
    """Return a stored value as text: secrets masked, unprintable signs visible, cut at ``limit`` signs."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return instant(value)
    text = json.dumps(value, ensure_ascii=False, indent=2) if isinstance(value, dict | list) else str(value)
    text = visible(text if isinstance(value, uuid.UUID | int | float) else redactor().text(text))
    return text if len(text) <= limit else f"{text[:limit]}…"


def unmasked(value: object) -> str:
    """Return a stored value whole and as it is, but for unprintable signs, which are made visible."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return visible(text)


def one_line(value: object, limit: int = SHORT) -> str:
    """Return a stored value as one short line."""
    text = " ".join(plain(value).split())
    return text if len(text) <= limit else f"{text[:limit]}…"


def when(value: datetime | None) -> str:
    """Show an instant by its distance from now, with the instant itself as title."""
    if value is None:
        return NOTHING
    said = relative(value, clock.now()).partition("(")[2].rstrip(")")
    return format_html('<time datetime="{0}" title="{0}">{1}</time>', instant(value), said)


def badge(state: str, note: str = "") -> SafeString:
    """Show a state as text with a border; never by colour alone."""
    return format_html(
        '<span class="dj-jobs-state dj-jobs-state-{}">{}</span>{}',
        "".join(sign for sign in state if sign.isascii() and (sign.isalnum() or sign == "_"))[:20],
        one_line(state.replace("_", " ")),
        f" {one_line(note)}" if note else "",
    )


def two_lines(first: object, second: object) -> SafeString:
    """Show a value with a second, quieter line below it."""
    return format_html(
        '{}<br><span class="dj-jobs-quiet">{}</span>', one_line(first), one_line(second, 100) if second else ""
    )


def link(url: str, text: object, limit: int = SHORT) -> SafeString:
    """Link a stored value."""
    return format_html('<a href="{}">{}</a>', url, one_line(text, limit))


def pairs(values: Mapping[str, Any]) -> SafeString:
    """Show names and values, one pair a line."""
    shown = [(name.replace("_", " "), plain(value)) for name, value in values.items()]
    return SafeString(render_to_string("admin/django_jobs/pairs.html", {"pairs": shown}))


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> SafeString:
    """Show rows under headings; cells are shown as they come if they are HTML, else as stored values."""
    cells = [[cell if isinstance(cell, SafeString) else plain(cell) for cell in row] for row in rows]
    context = {"caption": caption, "columns": columns, "rows": cells}
    return SafeString(render_to_string("admin/django_jobs/table.html", context))
