"""A message from outside: how its body is read, what tells two bodies apart, and the key of its job."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from django_jobs.domain.canonical import canonical
from django_jobs.domain.identity import KEY_LIMIT, fingerprint
from django_jobs.exceptions import PayloadError

KEEPS_MAX = 1024 * 1024  # signs of a body that cannot be read which are kept for a human
_KEY_STEM = "inbox:"

SameAs = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a message says.

    Args:
        data: As JSON values; meaningless when there is a ``problem``.
        text: As canonical JSON; of a body that cannot be read what a database can hold of it.
        digest: What two bodies that mean the same have in common; empty when nothing was given to compare.
        problem: Why the body cannot be read; empty when it can.
    """

    data: Any
    text: str
    digest: str
    problem: str = ""


NOTHING = Content(data=None, text="", digest="")


def read_content(given: object, *, same_as: SameAs | None, max_bytes: int, max_depth: int) -> Content:
    """Read what came: the bytes of a body, which may be anything, or values that the caller has read already.

    Raises:
        PayloadError: Values of the caller cannot be stored. Bytes never raise: their content tells what is wrong.
    """
    if isinstance(given, bytes | bytearray | memoryview):
        body = bytes(given)
        try:
            text = canonical(_parsed(body, max_bytes), max_bytes=max_bytes, max_depth=max_depth)
        except PayloadError as error:
            return _unreadable(body, str(error))
    else:
        text = canonical(given, max_bytes=max_bytes, max_depth=max_depth)
    data = json.loads(text)
    if same_as is None:
        return Content(data=data, text=text, digest=fingerprint(text))
    try:
        compared = canonical(same_as(json.loads(text)), max_bytes=max_bytes, max_depth=max_depth)
    except Exception as error:  # noqa: BLE001  the caller's function, and data from outside that it did not expect
        problem = f"same_as could not look at it: {type(error).__name__}"
        return Content(data=data, text=text, digest=fingerprint(text), problem=problem)
    return Content(data=data, text=text, digest=fingerprint(compared))


def _parsed(body: bytes, max_bytes: int) -> Any:
    if len(body) > max_bytes:  # before anything is parsed
        raise PayloadError(f"The body has {len(body)} bytes, more than {max_bytes}.")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PayloadError(f"The body is not UTF-8: byte {error.start} does not fit.") from None
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_json)
    except RecursionError:
        raise PayloadError("The body is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise PayloadError(f"The body is not JSON: {error.msg} at sign {error.pos}.") from None
    except PayloadError:
        raise
    except ValueError:  # a number of thousands of digits
        raise PayloadError("The body has a number that is too long.") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise PayloadError("The body has a name twice in one object, so readers would disagree about its value.")
    return found


def _no_json(name: str) -> NoReturn:
    raise PayloadError(f"The body has {name}, which JSON cannot say.")


def _unreadable(body: bytes, problem: str) -> Content:
    text = body[:KEEPS_MAX].decode("utf-8", "backslashreplace").replace("\x00", "\\x00")[:KEEPS_MAX]
    return Content(data=None, text=text, digest=fingerprint(body.hex()), problem=problem)


def message_key(source: str, message_id: str) -> str:
    """Return the idempotency key of the job that works on a message: no two messages of any sources have one key.

    A key that would be too long is given by its digest. ``jobs verify`` computes the same in SQL.
    """
    whole = f"{source.replace('%', '%25').replace(':', '%3A')}:{message_id}"
    key = _KEY_STEM + whole
    return key if len(key) <= KEY_LIMIT else _KEY_STEM + fingerprint(whole).removeprefix("v1:")
