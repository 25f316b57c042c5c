"""Masking of secrets as the settings want it: one place for what is stored, logged and shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.domain.errors import ErrorRecord, describe
from django_jobs.domain.redaction import DEFAULT_NAMES, MASK, Redactor
from django_jobs.domain.secret_forms import SHORTEST, forms_of


@cache
def _redactor_of(more: tuple[str, ...]) -> Redactor:
    return Redactor(DEFAULT_NAMES | set(more))


def redactor() -> Redactor:
    """Return what masks secrets: the built-in names and those of the settings."""
    return _redactor_of(get_settings().redact)


def described(error: BaseException) -> ErrorRecord:
    """Return what is stored and logged about an error: masked, and cut to the limit of the settings."""
    return describe(error, redact=redactor().text, limit=get_settings().error_max_bytes)


class Known:
    """Masks in texts from outside what a request carried as its secrets, in any form, and what the settings mask.

    ``least``: shorter parts of a secret are left alone, because they would be found in texts that have nothing to do
    with it.
    """

    def __init__(self, secrets: Iterable[str | bytes] = (), *, least: int = SHORTEST) -> None:
        listed = list(secrets)
        self._forms = _any_of(forms_of(listed, least=least))
        self._whole = _any_of(forms_of(listed, least=least, in_part=False))

    def told(self, text: str) -> str:
        """Return what may be stored and shown of a text."""
        return redactor().text(self.hidden(text))

    def hidden(self, text: str) -> str:
        """Return a text without these secrets, and otherwise as it is."""
        return text if self._forms is None else self._forms.sub(MASK, text)

    def hidden_in_reference(self, text: str) -> str:
        """Return what somebody calls something, without whole secrets.

        Parts stay: what is to be taken back later is named by it, and a tenant in a cookie stands in many names.
        """
        return text if self._whole is None else self._whole.sub(MASK, text)

    def hidden_in(self, value: Any) -> Any:
        """Return a JSON value without these secrets in its texts, at any depth."""
        if isinstance(value, str):
            return self.hidden(value)
        if isinstance(value, Mapping):
            return {name: self.hidden_in(member) for name, member in value.items()}
        if isinstance(value, list | tuple):
            return [self.hidden_in(member) for member in value]
        return value


def _any_of(forms: Iterable[str]) -> re.Pattern[str] | None:
    listed = sorted(forms, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, listed)), re.IGNORECASE) if listed else None


def secret_headers(headers: Mapping[str, str]) -> list[str]:
    """Return the values of those headers whose name says that they are secret."""
    mask = redactor()
    return [value for name, value in headers.items() if mask.hides(name)]
