"""The database on which jobs are stored."""

from __future__ import annotations

from django.db import connections, router

from django_jobs.exceptions import DefinitionError
from django_jobs.models import Job


def database_named(alias: str | None) -> str:
    """Return the alias; None or an empty one means where the router writes jobs.

    Raises:
        DefinitionError: The settings have no such database.
    """
    using = router.db_for_write(Job) if alias is None or alias == "" else alias
    if not isinstance(using, str) or using not in connections:
        msg = f"There is no database {using!r}; the settings have {', '.join(sorted(connections))}."
        raise DefinitionError(msg)
    return using
