"""What travels with a job beside its arguments: one JSON object with a value by the name of each propagator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_jobs.domain.canonical import canonical, stored_object
from django_jobs.exceptions import HookError, PayloadError

NAME_LIMIT = 50
_ROOM = 64 * 1024  # bytes in which a value is written before anybody asks whether it is too large


def carried_text(values: Mapping[str, object], *, max_bytes: int, max_depth: int) -> str | None:
    """Return captured values as they are stored; None when there is nothing to carry. A value of None is left out.

    Raises:
        HookError: A value cannot be stored, or all of them are too large together; it names the propagator.
    """
    parts = {name: _part(name, value, max_depth) for name, value in values.items() if value is not None}
    if not parts:
        return None
    text = f"{{{','.join(parts[name] for name in sorted(parts))}}}"  # names are ASCII: their order is the canonical one
    size = len(text.encode())
    if size > max_bytes:
        largest = max(parts, key=lambda name: len(parts[name].encode()))
        msg = (
            f"What a job carries would be {size} bytes, more than CONTEXT_MAX_BYTES ({max_bytes}); the largest part, "
            f"{len(parts[largest].encode())} bytes, is of the propagator {largest!r}. Carry an id instead. Nothing was "
            "stored."
        )
        raise HookError(msg, hook=largest)
    return text


def _part(name: str, value: object, max_depth: int) -> str:
    """Return a member of the object, without the braces."""
    try:
        return canonical({name: value}, max_bytes=_ROOM, max_depth=max_depth + 1)[1:-1]
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
    return stored_object(text, what="context", of="the names of propagators")
