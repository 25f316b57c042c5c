"""A site whose router reads from a replica: what was written is never there."""

import os

from testproject.databases import database_from_url
from testproject.settings import *  # noqa: F403
from testproject.settings import DATABASES

DATABASES["replica"] = database_from_url(os.environ["REPLICA_URL"])
DATABASE_ROUTERS = ["tests.variants.replica.ReadsFromReplica"]


class ReadsFromReplica:
    """Sends every read to the replica and every write to the primary, as a primary/replica router does."""

    def db_for_read(self, model: object, **hints: object) -> str:
        """Read from the replica."""
        return "replica"

    def db_for_write(self, model: object, **hints: object) -> str:
        """Write to the primary."""
        return "default"

    def allow_relation(self, one: object, other: object, **hints: object) -> bool:
        """Both hold the same rows."""
        return True
