"""Whether the database has every migration of this code, by one query and without building any state of models."""

from __future__ import annotations

from importlib import resources

from django.db import connections
from django.db.migrations.recorder import MigrationRecorder


def missing_migrations(using: str) -> list[str]:
    """Return the migrations of this code that are not applied, in order.

    Raises:
        DatabaseError: The database cannot be read.
    """
    files = resources.files("django_jobs").joinpath("migrations").iterdir()
    wanted = sorted(item.name.removesuffix(".py") for item in files if item.name[0].isdigit())
    rows = MigrationRecorder.Migration.objects.using(connections[using].alias)
    applied = set(rows.filter(app="django_jobs").values_list("name", flat=True))
    return [name for name in wanted if name not in applied]
