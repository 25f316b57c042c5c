"""The tasks: nothing here knows which backend runs them."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


@task
def add(a: int, b: int = 2) -> int:
    """Return a value."""
    return a + b


@task(priority=5, queue_name="notes")
def note(name: str) -> None:
    """Write a row."""
    Group.objects.create(name=name)


@task
async def note_async(name: str) -> list[str]:
    """Write a row from a coroutine, and return what is no scalar."""
    group = await Group.objects.acreate(name=name)
    return [group.name]


@task(takes_context=True)
def relay(context: Any, name: str) -> dict[str, int]:
    """Enqueue another task, and say what the context knows."""
    note.enqueue(name)
    return {"attempt": context.attempt}


@task
def fails(why: str) -> None:
    """Fail."""
    raise ValueError(why)
