"""Django's ``DATABASES`` entry for a database URL, the way a production project would write it."""

from __future__ import annotations

from typing import Any

import environ

SQLITE_OPTIONS: dict[str, Any] = {
    # A write transaction takes its lock when it begins: a lock taken later fails at once instead of waiting.
    "transaction_mode": "IMMEDIATE",
    "timeout": 5,  # seconds to wait for the lock
    # FULL: with NORMAL a power cut can forget an intent whose call was made.
    "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;",
}
POSTGRESQL_OPTIONS: dict[str, Any] = {
    "connect_timeout": 5,  # seconds
    # A host that vanished is noticed in about half a minute instead of two hours.
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
}


def database_from_url(url: str) -> dict[str, Any]:
    """Return the ``DATABASES`` entry for ``url`` (``sqlite:///…`` or ``postgres://…``).

    Options in the URL's query win over the defaults here; ``conn_max_age``, ``conn_health_checks``, ``pool`` and
    ``isolation_level`` (``read_committed``, ``repeatable_read``, ``serializable``) are understood there too. Other
    databases are passed on as they are: a system check of django_jobs refuses them.
    """
    entry: dict[str, Any] = dict(environ.Env.db_url_config(url))
    given = entry.get("OPTIONS") or {}
    if entry["ENGINE"].endswith("sqlite3"):
        entry["OPTIONS"] = {**SQLITE_OPTIONS, **given}
    elif entry["ENGINE"].endswith("postgresql"):
        entry["OPTIONS"] = {**POSTGRESQL_OPTIONS, **_typed(given)}
        entry["CONN_MAX_AGE"] = entry.get("CONN_MAX_AGE", 0 if "pool" in given else 60)
        entry["CONN_HEALTH_CHECKS"] = str(entry.get("CONN_HEALTH_CHECKS", True)).lower() == "true"
    return entry


def _typed(options: dict[str, Any]) -> dict[str, Any]:
    """Turn the texts of a URL into what Django's PostgreSQL backend wants."""
    found = dict(options)
    if "pool" in found:
        found["pool"] = str(found["pool"]).lower() == "true"
    if "isolation_level" in found:
        from psycopg import IsolationLevel  # not there on an installation for SQLite alone

        found["isolation_level"] = IsolationLevel[str(found["isolation_level"]).upper()]
    return found
