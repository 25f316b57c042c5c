"""What travels with a job beside its arguments: one JSON object with a value by the name of each propagator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django_jobs.domain.canonical import canonical
from django_jobs.exceptions import HookError, PayloadError

NAME_LIMIT = 50
_ROOM = 64 * 1024  # bytes in which a value is written before anybody asks whether it is too large


def carried_text(values: Mapping[str, object], *, max_bytes: int, max_depth: int) -> str | None:
    """Return captured values as they are stored; None when there is nothing to carry. A value of None is left out.

    Raises:
        HookError: A value cannot be stored, or all of them are too large together; it names the propagator.
    """
    sizes = {name: _size(name, value, max_depth) for name, value in values.items() if value is not None}
    if not sizes:
        return None
    text = canonical({name: values[name] for name in sizes}, max_bytes=len(sizes) * _ROOM, max_depth=max_depth + 1)
    size = len(text.encode())
    if size > max_bytes:
        largest = max(sizes, key=lambda name: sizes[name])
        msg = (
            f"What a job carries would be {size} bytes, more than CONTEXT_MAX_BYTES ({max_bytes}); the largest part, "
            f"{sizes[largest]} bytes, is of the propagator {largest!r}. Carry an id instead. Nothing was stored."
        )
        raise HookError(msg, hook=largest)
    return text


def _size(name: str, value: object, max_depth: int) -> int:
    try:
        return len(canonical({name: value}, max_bytes=_ROOM, max_depth=max_depth + 1).encode())
    except PayloadError as error:
        msg = f"The propagator {name!r} captured what cannot be stored: {error} Nothing was stored."
        raise HookError(msg, hook=name) from error


def carried_values(text: str | None) -> dict[str, Any]:
    """Read stored values back.

    Raises:
        PayloadError: The text is not what a producer stores.
    """
    if text is None:
        return {}
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"The stored context is not JSON: {error}."
        raise PayloadError(msg) from error
    if not isinstance(values, dict):
        msg = f"The stored context is a {type(values).__name__}, not an object with the names of propagators."
        raise PayloadError(msg)
    return values
