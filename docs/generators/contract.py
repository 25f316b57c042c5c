"""The contract of the test project, as ``jobs contract`` prints it."""

from __future__ import annotations

from collections.abc import Iterable

from django_jobs.define import registry
from django_jobs.effects.adapter import declared_effects
from django_jobs.management.overviews import job_lines, operation_lines
from django_jobs.operate.contract import RECOVERY, contract
from docs.generators import markdown

_PLACES = ("testproject.", "django_jobs.")  # what tests declare is no part of it


def recovery_words() -> str:
    """Return the words for recovery and what they mean."""
    return markdown.table(("Word", "After a crash"), ((markdown.code(word), text) for word, text in RECOVERY.items()))


def contract_of_testproject() -> str:
    """Return a table per job type and per operation of the test project."""
    found = contract()
    jobs = [item for item in found.jobs if _is_ours(registry.get(item.job_type).definition.func.__module__)]
    declared = declared_effects()
    operations = [item for item in found.operations if _is_ours(declared[item.name].function.__module__)]
    parts = [_part(f"Job `{item.job_type}`", job_lines(item)) for item in jobs]
    return "\n\n".join([*parts, *(_part(f"Operation `{item.name}`", operation_lines(item)) for item in operations)])


def _is_ours(module: str) -> bool:
    return module.startswith(_PLACES)


def _part(title: str, lines: Iterable[tuple[str, object]]) -> str:
    return f"### {title}\n\n" + markdown.table(("", ""), ((name, str(value) or "-") for name, value in lines))
