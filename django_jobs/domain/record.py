"""What is kept of an exception: its type, message, traceback and a fingerprint that groups equal failures.

Nothing here raises, whatever the exception does: the record of a failure must not fail.
"""

from __future__ import annotations

import functools
import hashlib
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType

LIMIT = 8192  # bytes of UTF-8 kept of a message and of a traceback
TYPE_LIMIT = 200

_SCAN_LIMIT = 262_144  # characters that are redacted at all; a longer text is cut before, at line ends
_GROUP_MEMBERS = 100
_FRAMES_MAX = 2000  # of one traceback: the last ones
_FRAMES_AT_LEAST = 50  # where the whole traceback cannot be made
_HIDDEN = "[not kept: the redaction failed on this text]"
_FOREIGN = ("/site-packages/", "/dist-packages/")
_STDLIB = tuple(sorted({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")}))
_OWN_PACKAGE = __name__.partition(".")[0]

# Read past what a class or its metaclass put in the way.
_MODULE_OF = type.__dict__["__module__"]
_NAME_OF = type.__dict__["__qualname__"]
_TRACE_OF = BaseException.__dict__["__traceback__"]
MEMBERS_OF = BaseExceptionGroup.__dict__["exceptions"]

# Order matters: what is quoted goes first, then the longer patterns before the digits inside them.
_VOLATILE = (
    re.compile(r"(?<!\w)'[^'\n]{0,500}'(?!\w)"),
    re.compile(r'(?<!\w)"[^"\n]{0,500}"(?!\w)'),
    re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"),
    re.compile(r"\b0[xX][0-9a-fA-F]+\b"),
    re.compile(r"\b(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}\b"),
    re.compile(r"[0-9]+(?:[.,:][0-9]+)*"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRecord:
    """An exception as text that any database can store; ``fingerprint`` is equal for failures that look the same."""

    type: str
    message: str
    traceback: str
    fingerprint: str


def describe(
    error: BaseException, *, redact: Callable[[str], str] = lambda text: text, limit: int = LIMIT
) -> ErrorRecord:
    """Return the record of ``error``: redacted first, then cut to ``limit`` bytes of UTF-8 each. Never raises."""
    kind = _type_name(error)
    message = _redacted(_safely(lambda: str(error), "[the message could not be made: its __str__ raised]"), redact)
    trace = _redacted(_traceback(error), redact)
    return ErrorRecord(
        type=kind,
        message=_cut_end(message, limit),
        traceback=_cut_middle(trace, limit),
        fingerprint=_fingerprint(error, kind, message, redact),
    )


def _safely(make: Callable[[], str], instead: str) -> str:
    """Return what ``make`` returns as storable text; foreign code may raise anything at all, even SystemExit."""
    try:
        return _storable(_scannable(str.__str__(make())))
    except BaseException:  # noqa: BLE001  the record of a failure must not fail
        return instead


def _storable(text: str) -> str:
    """Write NUL and lone surrogates as escapes: one database or the other refuses them."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def _type_name(error: BaseException) -> str:
    kind = type(error)
    module = _MODULE_OF.__get__(kind)
    prefix = "" if module == "builtins" or not isinstance(module, str) else f"{module}."
    return _storable(prefix + _NAME_OF.__get__(kind))[:TYPE_LIMIT]


def _traceback(error: BaseException) -> str:
    """Return the whole traceback; where foreign code spoils that, the frames alone."""
    whole = _safely(lambda: _format(error), "")
    if whole:
        return whole
    return _safely(lambda: _format_frames(error), "[the traceback could not be made]")


def _format(error: BaseException) -> str:
    # Locals are never captured: they hold payloads and secrets.
    trace = traceback.TracebackException.from_exception(error, limit=-_FRAMES_MAX, compact=True)
    text = "".join(map(_scannable, trace.format()))
    left_out = sum(1 for _ in _frames(_TRACE_OF.__get__(error))) - _FRAMES_MAX
    return text if left_out <= 0 else f"[{left_out} earlier frames left out]\n{text}"


def _format_frames(error: BaseException) -> str:
    frames = "".join(traceback.format_tb(_TRACE_OF.__get__(error), limit=-_FRAMES_AT_LEAST))
    return f"Traceback (most recent call last):\n{frames}{_type_name(error)}: [the rest could not be made]\n"


def _redacted(text: str, redact: Callable[[str], str]) -> str:
    try:
        return _storable(redact(_scannable(text)))
    except BaseException:  # noqa: BLE001  a text that could not be redacted is not kept
        return _HIDDEN


def _scannable(text: str) -> str:
    """Cut a huge text before redaction, at line ends: half a line could show a value without its tell-tale name."""
    if len(text) <= _SCAN_LIMIT:
        return text
    head, tail = text[: _SCAN_LIMIT // 2], text[-_SCAN_LIMIT // 2 :]
    _, _, tail = tail.partition("\n")
    return f"{head}\n[{len(text) - len(head) - len(tail)} characters left out]\n{tail}"


def _cut_end(text: str, limit: int) -> str:
    data = text.encode()
    if len(data) <= limit:
        return text
    note = f" […{len(data)} bytes in all]"
    room = limit - len(note.encode())
    return _clip(data[:room]) + note if room > 0 else _clip(data[:limit])


def _cut_middle(text: str, limit: int) -> str:
    """Keep more of the end: the last frames and the message stand there."""
    data = text.encode()
    if len(data) <= limit:
        return text
    note = f"\n[…{len(data)} bytes in all]\n"
    room = limit - len(note.encode())
    if room <= 0:
        return _clip(data[:limit])
    return _clip(data[: room // 4]) + note + _clip(data[len(data) - (room - room // 4) :])


def _clip(data: bytes) -> str:
    return data.decode("utf-8", "ignore")


def _fingerprint(error: BaseException, kind: str, message: str, redact: Callable[[str], str]) -> str:
    parts = [kind, _normalised(message), _safely(lambda: _place(error), "")]
    if issubclass(type(error), BaseExceptionGroup):
        parts.append(_safely(lambda: "\n".join(sorted(set(_member_texts(error, redact)))), ""))
    return "v1:" + hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _member_texts(group: BaseException, redact: Callable[[str], str]) -> Iterator[str]:
    waiting: list[BaseException] = list(MEMBERS_OF.__get__(group))
    for _ in range(_GROUP_MEMBERS):
        if not waiting:
            return
        member = waiting.pop()
        if issubclass(type(member), BaseExceptionGroup):
            waiting.extend(MEMBERS_OF.__get__(member))
        yield f"{_type_name(member)}: {_normalised(_redacted(_safely(functools.partial(str, member), ''), redact))}"


def _normalised(message: str) -> str:
    """Fold what differs between two occurrences of one failure: quoted values, ids, hex and numbers."""
    text = message[:2000]
    for pattern in _VOLATILE:
        text = pattern.sub("?", text)
    return " ".join(text.split())


def _place(error: BaseException) -> str:
    """Return module and function of the last frame in the user's own code; lines are left out, they move."""
    own = last = ""
    for frame, module in _frames(_TRACE_OF.__get__(error)):
        last = f"{module}:{frame.tb_frame.f_code.co_qualname}"
        if _is_own(frame.tb_frame.f_code.co_filename, module):
            own = last
    return own or last


def _frames(trace: TracebackType | None) -> Iterator[tuple[TracebackType, str]]:
    while trace is not None:
        yield trace, str(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next


def _is_own(filename: str, module: str) -> bool:
    if module.partition(".")[0] == _OWN_PACKAGE or filename.startswith("<"):
        return False
    return not (any(part in filename for part in _FOREIGN) or filename.startswith(_STDLIB))
