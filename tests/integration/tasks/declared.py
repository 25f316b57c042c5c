"""Tasks as any app declares them, and a job type beside them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from django_jobs import job
from django_jobs.backends.task_names import tasks

task = tasks.task
ran: list[Any] = []


@task
def add(a: int, b: int = 2) -> int:
    """Return the sum."""
    return a + b


@task(priority=5, queue_name="quick", takes_context=True)
def told(context: Any, n: int) -> dict[str, Any]:
    """Return what the context says."""
    return {"n": n, "attempt": context.attempt, "id": context.task_result.id, "status": context.task_result.status}


@task
async def count_users(more: int) -> int:
    """Ask the database from a coroutine."""
    return int(await User.objects.acount()) + more


@task
async def told_async(context_free: str) -> str:
    """Return its argument."""
    return context_free


@task
def fails() -> None:
    """Never succeed."""
    raise ValueError("no")


@task
def everything(*args: Any, **kwargs: Any) -> list[Any]:
    """Return what it got."""
    return [list(args), kwargs]


@task
def unstorable() -> Any:
    """Return what is no JSON."""
    return object()


@task
def enqueues(n: int) -> str:
    """Enqueue another task, as the author of a stock task does."""
    return str(add.enqueue(n).id)


@task
def writes(name: str) -> bool:
    """Write a row, and say whether a transaction was open."""
    User.objects.create_user(name)
    ran.append(transaction.get_connection().in_atomic_block)
    return True


@task
def notes(n: int) -> None:
    """Note that it ran."""
    ran.append(n)


@job(type="tests.own_task", key="n:{n}")
def own(n: int) -> None:
    """A job type, which is a task too on Django 6."""
    ran.append(n)


@job(type="tests.own_remembered", key="n:{n}", key_ttl=timedelta(days=1000))
def own_remembered(n: int) -> None:
    """A job type whose key answers for longer than its jobs are kept."""


@job(type="tests.own_async", takes_context=True)
async def own_async(context: Any, name: str) -> str:
    """A coroutine with a context."""
    user = await User.objects.acreate(username=name)
    return f"{user.username} {context.attempt}"


@job(type="tests.own_async_atomic")
async def own_async_atomic(name: str, fail: bool = False) -> None:
    """A coroutine in one transaction with its success."""
    await User.objects.acreate(username=name)
    if fail:
        raise ValueError(name)
