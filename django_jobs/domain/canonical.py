"""Canonical payload text: one value, one text (RFC 8785).

What one database would refuse is refused for both, before any SQL; a refusal names the place in the value and the mend,
never the value itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any
from uuid import UUID

import rfc8785

from django_jobs.exceptions import PayloadError

MAX_BYTES = 65536
MAX_DEPTH = 20
DEEPEST = 100  # that anybody may allow: each level takes several frames of the interpreter's stack
LARGEST_INT = 2**53 - 1  # beyond it, JSON numbers of other languages lose digits
_DECIMAL_DIGITS = 1000
_WRITTEN_WITH_EXPONENT = 1e21  # a smaller float has a text that reads back as an integer

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SURROGATE = re.compile("[\ud800-\udfff]")


Path = tuple[str | int, ...]


def canonical(value: object, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> str:
    """Return the RFC 8785 text of ``value``.

    Beyond JSON: Decimal keeps its digits as a string, a date and an aware datetime (in UTC) become ISO text, UUID and
    timedelta fixed text, an Enum its value, a tuple a list. Raises :class:`~django_jobs.exceptions.PayloadError` for
    anything else, for a text above ``max_bytes`` of UTF-8 and for more than ``max_depth`` nested levels.
    """
    encoder = Encoder(max_nodes=max_bytes, max_depth=max_depth)
    text = rfc8785.dumps(encoder.plain(value, (), 0))
    if len(text) > max_bytes:
        raise PayloadError(
            f"{len(text)} bytes of JSON are more than {max_bytes}; "
            "store the content elsewhere and pass its primary key or a reference."
        )
    return text.decode("utf-8")


def stored_object(text: str, *, what: str, of: str) -> dict[str, Any]:
    """Read back an object that was stored as text.

    Args:
        text: As it is stored.
        what: What it is, for the message: "payload".
        of: What its members are: "the arguments' names".

    Raises:
        PayloadError: It is not JSON, or no object.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"The stored {what} is not JSON: {error}."
        raise PayloadError(msg) from error
    if not isinstance(found, dict):
        msg = f"The stored {what} is a {type(found).__name__}, not an object with {of}."
        raise PayloadError(msg)
    return found


def where(path: Path) -> str:
    """Write a path like ``order.lines[2].price``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _IDENTIFIER.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{ascii(part)[:80]}]"
    return text or "the value"


def _refuse(path: Path, why: str) -> PayloadError:
    return PayloadError(f"{where(path)} {why}")


@dataclass(slots=True)
class Encoder:
    """Turns a value into plain JSON types. Each value costs a byte or more, so the bytes bound the values."""

    max_nodes: int
    max_depth: int
    nodes: int = 0

    def plain(self, value: object, path: Path, depth: int) -> Any:
        """Return ``value`` in plain JSON types; ``path`` is where it stands, for the message of a refusal."""
        self.nodes += 1
        if self.nodes > self.max_nodes:
            raise PayloadError(f"The arguments hold more than {self.max_nodes} values; pass a reference instead.")
        if value is None or isinstance(value, bool):
            return value
        for kind, encode in _SCALARS:
            if isinstance(value, kind):
                return encode(value, path)
        if isinstance(value, Enum):
            return self.plain(value.value, path, depth)
        return self._container(value, path, depth + 1)

    def _container(self, value: object, path: Path, depth: int) -> Any:
        if not isinstance(value, Mapping | list | tuple):
            raise _refuse(path, _unsuitable(value))
        if depth > self.max_depth:
            raise _refuse(
                path[:6], f"… is nested deeper than {self.max_depth} levels (or contains itself); flatten it."
            )
        if isinstance(value, Mapping):
            named = ((_key(name, path), member) for name, member in value.items())
            return {name: self.plain(member, (*path, name), depth) for name, member in named}
        return [self.plain(member, (*path, number), depth) for number, member in enumerate(value)]


def _key(name: object, path: Path) -> str:
    if not isinstance(name, str):
        raise _refuse(path, f"has a key of type {type(name).__name__}; only text can be a key, use str(key).")
    return _text(name, path)


def is_storable(text: str) -> bool:
    """Say whether every database can keep a text: it has neither NUL nor a lone surrogate."""
    return "\x00" not in text and _SURROGATE.search(text) is None


def _text(value: str, path: Path) -> str:
    plain = str.__str__(value)
    if "\x00" in plain:
        raise _refuse(path, "has a NUL character, which databases cannot store; remove it.")
    if _SURROGATE.search(plain):
        raise _refuse(path, "has half a character (a lone surrogate), which has no UTF-8 form; decode it correctly.")
    return plain


def _integer(value: int, path: Path) -> int:
    plain = int(value)
    if abs(plain) > LARGEST_INT:
        raise _refuse(path, "is beyond ±(2^53 - 1), where JSON numbers lose digits; pass str(value).")
    return plain


def _float(value: float, path: Path) -> float:
    plain = float(value)
    if not isfinite(plain):
        raise _refuse(path, "is NaN or infinite, which JSON cannot say; pass None or a text.")
    if LARGEST_INT < abs(plain) < _WRITTEN_WITH_EXPONENT:
        raise _refuse(path, "is a float beyond ±(2^53 - 1), which would come back as an integer; pass str(value).")
    return plain


def _decimal(value: Decimal, path: Path) -> str:
    if not value.is_finite():
        raise _refuse(path, "is a Decimal that is NaN or infinite; pass None or a text.")
    _, digits, exponent = value.as_tuple()
    if len(digits) + abs(int(exponent)) > _DECIMAL_DIGITS:
        raise _refuse(path, f"is a Decimal of more than {_DECIMAL_DIGITS} digits; quantize it.")
    return format(value, "f")


def _moment(value: datetime, path: Path) -> str:
    if value.utcoffset() is None:
        raise _refuse(path, "is a datetime without a time zone; pass an aware one (django.utils.timezone.now()).")
    try:
        utc = value.astimezone(UTC)
    except OverflowError:
        raise _refuse(path, "is a datetime that has no form in UTC (before year 1 or after 9999).") from None
    return utc.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _day(value: date, path: Path) -> str:  # noqa: ARG001  one signature for all encoders
    return value.isoformat()


def _uuid(value: UUID, path: Path) -> str:  # noqa: ARG001
    return str(value)


def _duration(value: timedelta, path: Path) -> str:  # noqa: ARG001
    sign, value = ("-", -value) if value < timedelta(0) else ("", value)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{sign}P{value.days}DT{hours:02}H{minutes:02}M{seconds:02}.{value.microseconds:06}S"


# The order matters: datetime is a date, and str or int subclasses include enums with such a base.
_SCALARS: tuple[tuple[type, Callable[[Any, Path], Any]], ...] = (
    (str, _text),
    (int, _integer),
    (float, _float),
    (Decimal, _decimal),
    (datetime, _moment),
    (date, _day),
    (UUID, _uuid),
    (timedelta, _duration),
)

_LAZY = "django.utils.functional.Promise"

_HINTS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((set, frozenset), "pass sorted(...) as a list"),
    ((bytes, bytearray, memoryview), "decode it, or store it and pass a reference"),
    ((type,), "pass its name"),
)


def _unsuitable(value: object) -> str:
    """Say why a value cannot be stored, with the mend that fits its type."""
    name = type(value).__name__
    for kinds, hint in _HINTS:
        if isinstance(value, kinds):
            return f"is of type {name}, which JSON cannot say; {hint}."
    if any(f"{kind.__module__}.{kind.__qualname__}" == _LAZY for kind in type(value).__mro__):
        return "is a lazy text, whose words depend on the language of the moment; pass str(value)."
    if hasattr(type(value), "_meta") and hasattr(type(value), "pk"):
        return f"is a model instance ({name}); pass its pk and load it in the handler."
    if is_dataclass(value):
        return f"is a dataclass ({name}); pass dataclasses.asdict(...)."
    if isinstance(value, Iterable):
        return f"is of type {name}, which is read only once or not at all; pass list(...)."
    return f"is of type {name}, which cannot be stored; pass text, numbers, lists or dicts."
