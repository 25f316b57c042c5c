"""The settings table, from the fields of ``JobsSettings``."""

from __future__ import annotations

from dataclasses import fields

from django_jobs.conf import KEYS, JobsSettings
from docs.generators import markdown


def table() -> str:
    """Return one row per setting: name, default, meaning."""
    defaults = JobsSettings()
    documented = {item.name: item.metadata["doc"] for item in fields(JobsSettings)}
    return markdown.table(
        ("Setting", "Default", "Meaning"),
        (
            (f"`{key}`", markdown.value(_plain(getattr(defaults, name))), documented[name])
            for key, name in sorted(KEYS.items())
        ),
    )


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
