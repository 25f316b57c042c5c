"""The ``@subscribe`` decorator: a job whose jobs come from events."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from django_jobs.define import registry
from django_jobs.define.decorators import declare
from django_jobs.define.definition import DurableJob, EventSource, JobDefinition
from django_jobs.define.events import check_event_name
from django_jobs.exceptions import DefinitionError

LOCAL = "local:"
_ALLOWED = frozenset(
    [
        *("type", "aliases", "queue_name", "priority", "key_ttl", "owner", "budget", "cleanup", "max_runtime", "retry"),
        *("useful_for", "atomic", "soft_timeout", "replay_permission", "resource"),
    ]
)


def subscribe(
    event_type: str, /, *, version: int = 1, **declared: Any
) -> Callable[[Callable[..., Any]], DurableJob[..., Any]]:
    """Declare a function as a subscriber: each event of this type and version becomes one job of it.

    The function takes ``(event)`` or ``(context, event)``, with event a :class:`~django_jobs.domain.events.Event`; the
    first runs in one transaction with its success.

    Args:
        event_type: For example ``shop.order.paid``.
        version: Of the event type.
        **declared: As for ``@job``: ``type`` (default: app label and function name), ``aliases``, ``queue_name``,
            ``priority``, ``owner``, ``budget``, ``cleanup``, ``max_runtime``, ``retry``, ``useful_for``, ``key_ttl``
            (how long after its end the event's id answers as a duplicate; at least as long as the setting
            ``KEEP_EVENTS``), ``atomic``, ``soft_timeout``, ``replay_permission``, ``resource``. The key is
            the event's id.

    Raises:
        DefinitionError: The declaration cannot work; the message says why.
    """
    check_event_name(event_type, version)
    unknown = sorted(set(declared) - _ALLOWED)
    if unknown:
        msg = f"@subscribe has no option {unknown[0]!r}; it takes {', '.join(sorted(_ALLOWED))}."
        raise DefinitionError(msg)

    def decorate(func: Callable[..., Any]) -> DurableJob[..., Any]:
        return declare(
            func,
            source=EventSource(event_type=event_type, version=version),
            version=version,
            takes_context=_takes_context(func),
            **declared,
        )

    return decorate


def _takes_context(func: Callable[..., Any]) -> bool:
    names = list(inspect.signature(func).parameters) if inspect.isfunction(func) else []
    if names not in (["event"], ["context", "event"]):
        msg = f"{getattr(func, '__qualname__', func)!s}: a subscriber takes (event) or (context, event), not {names}."
        raise DefinitionError(msg)
    return names[0] == "context"


def destination_of(definition: JobDefinition) -> str:
    """Return the name of a subscriber's destination: made of its oldest name, so that a rename keeps it."""
    return LOCAL + definition.oldest_name


def subscribers() -> Iterator[tuple[str, JobDefinition]]:
    """Yield each declared subscriber with the name of its destination."""
    for name, definition in registry.definitions():
        if definition.source is not None and name == definition.job_type:
            yield destination_of(definition), definition
