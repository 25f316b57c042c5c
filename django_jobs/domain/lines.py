"""Text from rows, handlers and providers as it may stand in a log: it can neither begin a line nor drive a terminal."""

from __future__ import annotations

import unicodedata

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
INDENT = "  "


def one_line(value: object) -> str:
    """Return a text on one line: line ends and tabs as escapes; control, bidi and other unseen signs as ``\\x1b``."""
    text = str(value)
    return text if text.isascii() and text.isprintable() else "".join(map(_seen, text))


def indented(text: str) -> str:
    """Return a text of several lines, such as a traceback: no line after the first begins as a line of a log does."""
    first, *others = text.splitlines() or [""]
    return "\n".join([one_line(first), *(INDENT + one_line(line) for line in others)])


def _seen(sign: str) -> str:
    if sign in _NAMED:
        return _NAMED[sign]
    # C: control, format (bidi), surrogates, unassigned; Zl and Zp end lines where Unicode is obeyed
    if unicodedata.category(sign)[0] == "C" or sign in "\u2028\u2029":
        return sign.encode("ascii", "backslashreplace").decode() if ord(sign) > 0x7F else f"\\x{ord(sign):02x}"
    return sign
