"""Noticing what a crash would repeat: rows that a handler writes outside of the transaction of its success."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Any

import django

import django_jobs
from django_jobs.enqueue.inside import current

_WRITE = re.compile(r"\s*(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM|MERGE\s+INTO)\s+[\"`]?(?P<table>[\w.]+)", re.IGNORECASE)
_FRAMES = tuple(f"{Path(str(module.__file__)).parent}/" for module in (django, django_jobs))


class RepeatableWriteWarning(UserWarning):
    """A handler wrote rows outside of ``complete()``, ``step()`` and its atomic transaction: a crash repeats them."""


def notice(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
    """Run a statement, and warn with the handler's own line when it writes what a crash would write again."""
    inside = current.get()
    if inside is not None and not inside.is_stock_task and not inside.commits_with_success and isinstance(sql, str):
        found = _WRITE.match(sql)
        if found is not None and not found["table"].startswith("django_jobs_"):
            _warn(found["table"])
    return execute(sql, params, many, context)


def _warn(table: str) -> None:
    frame = sys._getframe(1)  # noqa: SLF001  warnings skip by number, and how deep Django is here is nobody's promise
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_FRAMES):
        frame = frame.f_back
    text = (
        f"A handler wrote to {table} outside of complete() and step(): if its process died before the success was "
        "recorded, the next attempt would write that again."
    )
    warnings.warn_explicit(text, RepeatableWriteWarning, frame.f_code.co_filename, frame.f_lineno)
