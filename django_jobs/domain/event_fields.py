"""Whether the fields of an event are what its type declares."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django_jobs.exceptions import DefinitionError, EventError

_PLAIN = (bool, int, float, str, Decimal, UUID, date, datetime, timedelta, list, dict)


def check_kinds(fields: Mapping[str, Any], *, name: str) -> None:
    """Refuse a declaration whose fields cannot be stored as JSON, or have no name.

    Raises:
        DefinitionError: The message names the event type and the field.
    """
    for field, kind in fields.items():
        if not isinstance(field, str) or not field.isidentifier():
            msg = f"Event type {name!r}: {field!r} is no name for a field."
            raise DefinitionError(msg)
        if not _is_known(kind):
            known = ", ".join(sorted(kind.__name__ for kind in _PLAIN))
            msg = f"Event type {name!r}: {field} cannot be of type {kind!r}; use {known}, or one of them with | None."
            raise DefinitionError(msg)


def _is_known(kind: Any) -> bool:
    if _is_union(kind):
        return all(part is types.NoneType or _is_known(part) for part in typing.get_args(kind))
    return (typing.get_origin(kind) or kind) in _PLAIN


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in {typing.Union, types.UnionType}


def check_fields(data: Mapping[str, Any], fields: Mapping[str, Any], *, name: str) -> None:
    """Refuse data that is not exactly what is declared; a field that may be None may be left out.

    Raises:
        EventError: The message names the event type and the field.
    """
    for field in data:
        if field not in fields:
            declared = ", ".join(sorted(fields)) or "none"
            msg = f"The event {name} has no field {field!r}; declared are: {declared}."
            raise EventError(msg)
    for field, kind in fields.items():
        if field not in data and not _fits(None, kind):
            msg = f"The event {name} needs the field {field!r}."
            raise EventError(msg)
        if field in data and not _fits(data[field], kind):
            msg = f"The field {field!r} of the event {name} must be {_words(kind)}, not {type(data[field]).__name__}."
            raise EventError(msg)


def _fits(value: object, kind: Any) -> bool:
    if _is_union(kind):
        return any(_fits(value, part) for part in typing.get_args(kind))
    if kind is types.NoneType:
        return value is None
    plain = typing.get_origin(kind) or kind
    if plain in {int, float} and isinstance(value, bool):
        return False
    if plain is float:
        return isinstance(value, float | int)
    if plain is date and isinstance(value, datetime):
        return False
    return isinstance(value, tuple | list if plain is list else plain)


def _words(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and typing.get_origin(kind) is None else str(kind)
