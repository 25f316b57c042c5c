"""A site without a default database: a router sends the jobs to one database and everything else to another."""

import os

from testproject.databases import database_from_url
from testproject.settings import *  # noqa: F403

DATABASES = {
    "default": {},
    "jobs": database_from_url(os.environ["DATABASE_URL"]),
    "main": database_from_url(os.environ["REPLICA_URL"]),
}
DATABASE_ROUTERS = ["tests.variants.elsewhere.JobsApart"]


class JobsApart:
    """Keeps the tables of the jobs, and none but them, in a database of their own."""

    def db_for_read(self, model: type, **hints: object) -> str:
        """Read where it is written."""
        return self.db_for_write(model)

    def db_for_write(self, model: type, **hints: object) -> str:
        """Write jobs to "jobs" and the rest to "main"."""
        return "jobs" if model._meta.app_label == "django_jobs" else "main"

    def allow_migrate(self, db: str, app_label: str, **hints: object) -> bool:
        """Each database has the tables of its own models."""
        return db == ("jobs" if app_label == "django_jobs" else "main")
