"""A project's own kind of the backend."""

from __future__ import annotations

from django_jobs.backends.tasks import DurableBackend


class OwnBackend(DurableBackend):
    """Differs in nothing but its name."""
