"""The contract of the test project, as ``jobs contract`` prints it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from django_jobs.define import registry
from django_jobs.define.events import EventType
from django_jobs.effects.adapter import declared_effects
from django_jobs.management.contracts import consumer_lines, event_lines, job_lines, operation_lines
from django_jobs.operate.contract import RECOVERY, contract
from django_jobs.operate.contract_events import EventContract
from docs.generators import markdown
from testproject.shop import events as events_of_testproject

_PLACES = ("testproject.", "django_jobs.")  # what tests declare is no part of it


def recovery_words() -> str:
    """Return the words for recovery and what they mean."""
    return markdown.table(("Word", "After a crash"), ((markdown.code(word), text) for word, text in RECOVERY.items()))


def contract_of_testproject() -> str:
    """Return a table per job type, operation, event type and consumer of the test project."""
    found = contract()
    jobs = [item for item in found.jobs if _is_ours(registry.get(item.job_type).definition.func.__module__)]
    declared = declared_effects()
    operations = [item for item in found.operations if _is_ours(declared[item.name].function.__module__)]
    types = {item.job_type for item in jobs}
    events = [_without_tests(item, types) for item in found.events if item.event_type in _declared_events()]
    consumers = [item for item in found.consumers if item.job_type in types]
    parts = [
        *(_part(f"Job `{item.job_type}`", job_lines(item)) for item in jobs),
        *(_part(f"Operation `{item.name}`", operation_lines(item)) for item in operations),
        *(_part(f"Event `{item.event_type}` v{item.version}", event_lines(item)) for item in events),
        *(_part(f"Consumer `{item.consumer}`", consumer_lines(item)) for item in consumers),
    ]
    return "\n\n".join(parts)


def _declared_events() -> set[str]:
    return {item.name for item in vars(events_of_testproject).values() if isinstance(item, EventType)}


def _without_tests(event: EventContract, types: set[str]) -> EventContract:
    routes = tuple(route for route in event.routes if not route.is_subscriber or route.by in types)
    return replace(event, routes=routes)


def _is_ours(module: str) -> bool:
    return module.startswith(_PLACES)


def _part(title: str, lines: Iterable[tuple[str, object]]) -> str:
    return f"### {title}\n\n" + markdown.table(("", ""), ((name, str(value) or "-") for name, value in lines))
