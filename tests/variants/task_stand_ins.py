"""The package's backend in the place of those that Django's own tests of tasks are written for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from asgiref.sync import sync_to_async

from django_jobs import RetryPolicy
from django_jobs.backends.tasks import DurableBackend
from django_jobs.testing import JobsKit


class Durable(DurableBackend):
    """The backend with one attempt per job, as Django's have; that is what their tests count."""

    def _policy(self, task: Any) -> dict[str, Any]:
        return {"retry": RetryPolicy(unknown_attempts=1), **super()._policy(task)}


class Recording(Durable):
    """For tests of the dummy backend, which lists what was enqueued."""

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self.results: list[Any] = []

    def clear(self) -> None:
        """Forget it."""
        self.results.clear()

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Store a job, and list it."""
        result = super().enqueue(task, args, kwargs)
        self.results.append(result)
        return result


class AtOnce(Durable):
    """For tests of the immediate backend: what was enqueued is run by a worker's code before ``enqueue`` returns."""

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Store a job, run it, and return what came of it."""
        result = super().enqueue(task, args, kwargs)
        with JobsKit() as jobs:
            jobs.run_until_idle()
        result.refresh()
        return result

    async def aenqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Do the same for async code."""
        return await sync_to_async(self.enqueue, thread_sensitive=True)(task, args, kwargs)
