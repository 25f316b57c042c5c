"""Masking of secrets in JSON values by key, and in free text by what stands before them.

Redaction is the second line: secrets do not belong into payloads at all. It rather hides too much than too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from django_jobs.exceptions import DefinitionError

MASK = "[redacted]"

DEFAULT_NAMES = frozenset(
    {
        "password",
        "passwd",
        "passphrase",
        "pwd",
        "secret",
        "token",
        "authorization",
        "api_key",
        "access_key",
        "private_key",
        "credential",
        "cookie",
        "session_id",
        "sessionid",
        "csrf",
        "card",
        "pan",
        "cvv",
        "cvc",
        "pin",
        "iban",
        "ssn",
        "otp",
    }
)

_SHORT = 4  # up to this length a name must stand alone: "pin" is no part of "shipping"

# The sign before or after a short name: no letter, or the hump of a camelCase word.
_LEFT = r"(?:(?<![A-Za-z])|(?-i:(?<=[a-z])(?=[A-Z])))"
_RIGHT = r"(?:(?![A-Za-z])|(?=s(?![A-Za-z]))|(?-i:(?<=[a-z])(?=[A-Z])))"

_QUOTED = r"""\\*[bruBRU]{0,2}(?:"(?:[^"\\]|\\.)*(?:"|$)|'(?:[^'\\]|\\.)*(?:'|$))"""
_ESCAPED = r"""\\+"(?:(?!\\+").)*(?:\\+"|$)"""  # JSON inside a JSON string
_NESTED = r"\[[^\]]*(?:\]|$)|\{[^}]*(?:\}|$)|\([^)]*(?:\)|$)"
_LITERAL = r"(?:-?[0-9]+(?:\.[0-9]+)?|true|false|null|None|True|False)(?=[\s,;}\])]|$)"
_SCHEME = r"(?:Bearer|Basic|Digest|Token|ApiKey)\s+[^\s,;'\"]+"
_WORD = r"[^\s&]+?(?=[,;]?(?:\s|&|$))"

_FIXED: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"-----BEGIN ([A-Z ]{0,40}PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL),
        MASK,
    ),
    # A header's value has parts of its own, so its whole line goes.
    (re.compile(r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie)(:[ \t]*)(?!\\*[\"'\[])[^\r\n]+"), rf"\1\2{MASK}"),
    (re.compile(r"\beyJ[\w-]{5,}\.[\w-]+\.[\w-]*"), MASK),
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,30}://)[^\s/?#\"'<>]*@"), rf"\1{MASK}@"),
    (re.compile(r"(?i)([?&](?:key|sig|signature|code|auth|access_token)=)[^\s&#\"'<>]+"), rf"\1{MASK}"),
    (re.compile(r"(?i)\b(Bearer|Basic)(\s+)(?!\[redacted\])[\w.~+/=-]+"), rf"\1\2{MASK}"),
)


class Redactor:
    """Masks what a set of names calls secret.

    A name matches a key that contains it as words, whatever the case and whether joined by ``_``, ``-`` or a hump:
    ``api_key`` matches ``X-Api-Key`` and ``stripeApiKey``. Names longer than four letters match inside other words too.
    Raises :class:`~django_jobs.exceptions.DefinitionError` for a name that is no text.
    """

    def __init__(self, names: Iterable[str] = DEFAULT_NAMES) -> None:
        self.names = frozenset(names)
        for name in self.names:
            _check_name(name)
        pattern = "|".join(sorted(map(_name_pattern, self.names), key=len, reverse=True)) or r"(?!)"
        self._key = re.compile(f"(?i){pattern}")
        self._pair = re.compile(
            rf"""(?is)((?:{pattern})[\w.-]{{0,60}}\\*["']?\]?\s*(?:=>|:=|==|=|:)\s*)"""
            rf"(?:{_ESCAPED}|{_QUOTED}|{_SCHEME}|{_NESTED}|{_LITERAL}|{_WORD})"
        )

    def hides(self, name: str) -> bool:
        """Say whether the value under this key is secret."""
        return self._key.search(name) is not None

    def value(self, json_value: Any) -> Any:
        """Return a copy of a JSON value with secrets masked, by key at any depth and inside texts."""
        if isinstance(json_value, str):
            return self.text(json_value)
        if isinstance(json_value, Mapping):
            return {name: self._member(str(name), member) for name, member in json_value.items()}
        if isinstance(json_value, list | tuple):
            return [self.value(member) for member in json_value]
        return json_value

    def _member(self, name: str, member: Any) -> Any:
        # None stays: that a secret is missing is no secret, and often the reason of a failure.
        return MASK if member is not None and self.hides(name) else self.value(member)

    def text(self, text: str) -> str:
        """Return free text with secrets masked: pairs, headers, URLs, tokens and private keys."""
        for pattern, replacement in _FIXED:
            text = pattern.sub(replacement, text)
        return self._pair.sub(rf"\1{MASK}", text)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise DefinitionError(f"A name to redact is {name!r}; give text, for example 'password'.")


def _name_pattern(name: str) -> str:
    words = r"[-_. ]?".join(re.escape(word) for word in re.split(r"[-_. ]+", name.strip()) if word)
    return words if len(name.strip()) > _SHORT else f"{_LEFT}{words}{_RIGHT}"
