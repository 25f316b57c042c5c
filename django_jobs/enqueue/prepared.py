"""One enqueue, checked and encoded: everything that can be wrong is found before any SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.domain.identity import (
    canonical,
    check_key,
    check_name,
    fingerprint,
    format_key,
    scope_text,
    serial_text,
)
from django_jobs.domain.options import SERIAL_LIMIT, EnqueueOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A checked enqueue: no statement was run for it yet."""

    options: EnqueueOptions
    arguments: str
    fingerprint: str
    key: str
    key_scope: str
    subject: str
    using: str
    serial_key: str = ""
    correlation_id: str = ""  # of an event that the job comes from; else the handler's that enqueues
    traceparent: str = ""
    context: str | None = None  # what the job carries to its handler, as it is stored


def encode(options: EnqueueOptions, arguments: Mapping[str, Any], using: str) -> Prepared:
    """Write the arguments as they are stored, with the key and the subject that they give.

    Raises:
        PayloadError: They cannot be stored, or the annotations of the handler could not take them back.
    """
    text, digest = encoded(arguments)
    if options.fits is not None:
        options.fits(arguments, text)
    return Prepared(
        options=options,
        arguments=text,
        fingerprint=digest,
        key="" if options.key is None else check_key(_filled("key", options, arguments)),
        key_scope="" if options.key is None else scope_text(options.tenant, options.key_scope),
        subject=_subject(options, arguments),
        serial_key=_serial_key(options, arguments),
        using=using,
    )


def encoded(arguments: Mapping[str, Any]) -> tuple[str, str]:
    """Return arguments as they are stored, and their fingerprint.

    Raises:
        PayloadError: They cannot be stored.
    """
    rules = get_settings()
    text = canonical(dict(arguments), max_bytes=rules.payload_max_bytes, max_depth=rules.payload_max_depth)
    return text, fingerprint(text)


def _subject(options: EnqueueOptions, arguments: Mapping[str, Any]) -> str:
    if not options.subject:
        return ""
    return check_name(_filled("subject", options, arguments), what="subject", limit=200)


def _serial_key(options: EnqueueOptions, arguments: Mapping[str, Any]) -> str:
    if not options.serial_key:
        return ""
    text = check_name(_filled("serial_key", options, arguments), what="serial_key", limit=SERIAL_LIMIT)
    return serial_text(text, tenant=options.tenant)


def _filled(name: str, options: EnqueueOptions, arguments: Mapping[str, Any]) -> str:
    text: str = getattr(options, name)
    return text if name in options.literal else format_key(text, arguments)
