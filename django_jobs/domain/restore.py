"""The way back from a stored payload: JSON values in the types that a handler's annotations name."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from django_jobs.domain.canonical import MAX_BYTES, MAX_DEPTH, Encoder, where
from django_jobs.exceptions import PayloadError

_DECIMAL = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_DURATION = re.compile(r"(-?)P([0-9]{1,9})DT([0-9]{2})H([0-9]{2})M([0-9]{2})\.([0-9]{6})S")


def restore(value: Any, annotation: Any, *, path: str = "value", strict: bool = False) -> Any:
    """Return a JSON value in the form that a handler's ``annotation`` names.

    Restored are Decimal, UUID, datetime (aware, UTC), date, timedelta, float, enums, and these inside unions, list,
    tuple and dict. Under any other annotation, and None under every annotation, the value is returned as it is.
    In a union, text, numbers and booleans stay as they are where it names str, int, float or bool; else that member
    takes the value whose own form it is, or the first one that can read it.

    ``strict`` is for what is about to be stored: then ``int`` and ``bool`` refuse what is none too, and so does a
    union of which no member takes the value.
    Raises :class:`~django_jobs.exceptions.PayloadError` with the ``path`` when the value does not fit.
    """
    annotation = unwrapped(annotation)
    if value is None:
        return None
    if is_union(annotation):
        return _union(value, choices_of(annotation), path, strict)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enum(value, annotation, path)
    kind = get_origin(annotation) or annotation
    if not isinstance(kind, type):
        return value
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](value, get_args(annotation), path, strict)
    if kind in _READERS:
        return _READERS[kind](value, path)
    if strict and kind in _WHOLE and not isinstance(value, int):
        raise _misfit(path, _WHOLE[kind], value)
    return value


_WHOLE: dict[Any, str] = {int: "a whole number", bool: "True or False"}
_AS_JSON_HAS_THEM = (str, int, float, bool)


def unwrapped(annotation: Any) -> Any:
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


def is_union(annotation: Any) -> bool:
    """Say whether an annotation names several types, of which None may be one."""
    return get_origin(annotation) in (Union, types.UnionType)


def choices_of(union: Any) -> list[Any]:
    """Return what a union names beside None, unions inside of it opened."""
    found: list[Any] = []
    for choice in map(unwrapped, get_args(union)):
        found += choices_of(choice) if is_union(choice) else [choice] * (choice is not types.NoneType)
    return found


def _union(value: Any, choices: list[Any], path: str, strict: bool) -> Any:
    if len(choices) == 1:
        return restore(value, choices[0], path=path, strict=strict)
    if any(takes(choice, value) for choice in choices):
        return value
    found = [answer for choice in choices for answer in _readings(value, choice, path)]
    for answer in found:
        if stored_form(answer) == value:
            return answer
    if found:
        return found[0]
    if any(not _is_known(choice) for choice in choices):
        return value
    if strict or not any(_is_plain(choice) for choice in choices):
        raise _misfit(path, " or ".join(map(name_of, choices)), value)
    return value


def takes(choice: Any, value: Any) -> bool:
    """Say whether one type of a union takes a JSON value as it is."""
    if choice is Any or choice is object:
        return True
    if get_origin(choice) is Literal:
        return any(type(one) is type(value) and one == value for one in get_args(choice))
    return choice in _AS_JSON_HAS_THEM and type(value) is choice


def _readings(value: Any, choice: Any, path: str) -> list[Any]:
    if (_is_plain(choice) and choice is not float) or not _is_known(choice):
        return []
    try:
        return [restore(value, choice, path=path, strict=True)]
    except PayloadError:
        return []


def _is_plain(choice: Any) -> bool:
    return get_origin(choice) is Literal or choice in _AS_JSON_HAS_THEM


def _is_known(choice: Any) -> bool:
    """Say whether there is a rule for a type; a value under any other is returned as it is."""
    if _is_plain(choice) or (isinstance(choice, type) and issubclass(choice, Enum)):
        return True
    kind = get_origin(choice) or choice
    return isinstance(kind, type) and (kind in _CONTAINERS or kind in _READERS)


def name_of(annotation: Any) -> str:
    """Return how an annotation is called in a message."""
    return annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)


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
        if stored_form(member.value) == value:
            return member
    raise _misfit(path, f"a member of {annotation.__name__}", value)


def stored_form(value: Any) -> Any:
    """Return a value in plain JSON types; None for one that can never have been stored."""
    try:
        return Encoder(max_nodes=MAX_BYTES, max_depth=MAX_DEPTH).plain(value, (), 0)
    except PayloadError:
        return None


def _list(value: Any, members: tuple[Any, ...], path: str, strict: bool) -> list[Any]:
    if not isinstance(value, list):
        raise _misfit(path, "a list", value)
    kind = members[0] if members else Any
    return [restore(member, kind, path=f"{path}[{number}]", strict=strict) for number, member in enumerate(value)]


def _tuple(value: Any, members: tuple[Any, ...], path: str, strict: bool) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _misfit(path, "a list", value)
    if not members or members[-1] is Ellipsis:
        return tuple(_list(value, members[:1], path, strict))
    if len(members) != len(value):
        raise PayloadError(f"{path} should have {len(members)} members, but the payload holds {len(value)}.")
    pairs = enumerate(zip(value, members, strict=True))
    return tuple(restore(member, kind, path=f"{path}[{number}]", strict=strict) for number, (member, kind) in pairs)


def _dict(value: Any, members: tuple[Any, ...], path: str, strict: bool) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _misfit(path, "an object", value)
    kind = members[1] if len(members) == 2 else Any
    return {name: restore(member, kind, path=where((path, name)), strict=strict) for name, member in value.items()}


_CONTAINERS: dict[Any, Callable[[Any, tuple[Any, ...], str, bool], Any]] = {
    list: _list,
    Sequence: _list,
    Collection: _list,
    Iterable: _list,
    tuple: _tuple,
    dict: _dict,
    Mapping: _dict,
}
