"""Masking of secrets as the settings want it: one place for what is stored, logged and shown."""

from __future__ import annotations

from functools import cache

from django_jobs.conf import get_settings
from django_jobs.domain.errors import ErrorRecord, describe
from django_jobs.domain.redaction import DEFAULT_NAMES, Redactor


@cache
def _redactor_of(more: tuple[str, ...]) -> Redactor:
    return Redactor(DEFAULT_NAMES | set(more))


def redactor() -> Redactor:
    """Return what masks secrets: the built-in names and those of the settings."""
    return _redactor_of(get_settings().redact)


def described(error: BaseException) -> ErrorRecord:
    """Return what is stored and logged about an error: masked, and cut to the limit of the settings."""
    return describe(error, redact=redactor().text, limit=get_settings().error_max_bytes)
