"""The way back from a stored payload: JSON values in the types that a handler's annotations name."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin
from uuid import UUID

from django_jobs.domain.canonical import MAX_BYTES, MAX_DEPTH, Encoder, where
from django_jobs.exceptions import PayloadError

_DECIMAL = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_DURATION = re.compile(r"(-?)P([0-9]{1,9})DT([0-9]{2})H([0-9]{2})M([0-9]{2})\.([0-9]{6})S")


def restore(value: Any, annotation: Any, *, path: str = "value") -> Any:
    """Return a JSON value in the form that a handler's ``annotation`` names.

    Restored are Decimal, UUID, datetime (aware, UTC), date, timedelta, float, enums, and these inside Optional, list,
    tuple and dict. Under any other annotation, and None under every annotation, the value is returned as it is.
    Raises :class:`~django_jobs.exceptions.PayloadError` with the ``path`` when the value does not fit.
    """
    annotation = _unwrapped(annotation)
    if value is None:
        return None
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        choices = [choice for choice in get_args(annotation) if choice is not types.NoneType]
        return restore(value, choices[0], path=path) if len(choices) == 1 else value
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enum(value, annotation, path)
    kind = origin or annotation
    if not isinstance(kind, type):
        return value
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](value, get_args(annotation), path)
    if kind in _READERS:
        return _READERS[kind](value, path)
    return value


def _unwrapped(annotation: Any) -> Any:
    """Look through Annotated, NewType and type aliases, which say nothing about the stored form."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return annotation


def _misfit(path: str, wanted: str, value: Any) -> PayloadError:
    return PayloadError(f"{path} should be {wanted}, but the payload holds {_json_name(value)} that is none.")


def _json_name(value: Any) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return names.get(type(value), f"a {type(value).__name__}")


def _read_decimal(value: Any, path: str) -> Decimal:
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return Decimal(value)
    raise _misfit(path, "a Decimal (digits as text)", value)


def _read_float(value: Any, path: str) -> float:
    # Whole floats are stored like integers, so 1 comes back for 1.0.
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise _misfit(path, "a float", value)


def _read_text(parse: Callable[[str], Any], wanted: str) -> Callable[[Any, str], Any]:
    def read(value: Any, path: str) -> Any:
        if isinstance(value, str):
            try:
                return parse(value)
            except (ValueError, OverflowError, InvalidOperation):
                pass
        raise _misfit(path, wanted, value)

    return read


def _parse_moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.utcoffset() is None:
        raise ValueError("no time zone")
    return moment.astimezone(UTC)


def _parse_duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("no duration")
    days, hours, minutes, seconds, micros = (int(part) for part in match.groups()[1:])
    length = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, microseconds=micros)
    return -length if match[1] else length


_READERS: dict[Any, Callable[[Any, str], Any]] = {
    Decimal: _read_decimal,
    float: _read_float,
    UUID: _read_text(UUID, "a UUID"),
    datetime: _read_text(_parse_moment, "a datetime with a time zone"),
    date: _read_text(date.fromisoformat, "a date (YYYY-MM-DD)"),
    timedelta: _read_text(_parse_duration, "a duration (P0DT00H00M00.000000S)"),
}


def _enum(value: Any, annotation: type[Enum], path: str) -> Enum:
    try:
        return annotation(value)
    except (ValueError, TypeError):
        pass
    for member in annotation:  # a member whose value is stored in another form: a date, a Decimal, a tuple
        if _stored_form(member) == value:
            return member
    raise _misfit(path, f"a member of {annotation.__name__}", value)


def _stored_form(member: Enum) -> Any:
    try:
        return Encoder(max_nodes=MAX_BYTES, max_depth=MAX_DEPTH).plain(member.value, (), 0)
    except PayloadError:
        return None  # it can never have been stored


def _list(value: Any, members: tuple[Any, ...], path: str) -> list[Any]:
    if not isinstance(value, list):
        raise _misfit(path, "a list", value)
    kind = members[0] if members else Any
    return [restore(member, kind, path=f"{path}[{number}]") for number, member in enumerate(value)]


def _tuple(value: Any, members: tuple[Any, ...], path: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _misfit(path, "a list", value)
    if not members or members[-1] is Ellipsis:
        return tuple(_list(value, members[:1], path))
    if len(members) != len(value):
        raise PayloadError(f"{path} should have {len(members)} members, but the payload holds {len(value)}.")
    pairs = enumerate(zip(value, members, strict=True))
    return tuple(restore(member, kind, path=f"{path}[{number}]") for number, (member, kind) in pairs)


def _dict(value: Any, members: tuple[Any, ...], path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _misfit(path, "an object", value)
    kind = members[1] if len(members) == 2 else Any
    return {name: restore(member, kind, path=where((path, name))) for name, member in value.items()}


_CONTAINERS: dict[Any, Callable[[Any, tuple[Any, ...], str], Any]] = {
    list: _list,
    Sequence: _list,
    Collection: _list,
    Iterable: _list,
    tuple: _tuple,
    dict: _dict,
    Mapping: _dict,
}
