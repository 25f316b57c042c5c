"""How many jobs of a queue run at once: counted from the rows that run, under a lock of the transaction that claims.

Claims of what uses a resource take a lock of the resource in the same way.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from django.db import connections, transaction

from django_jobs.conf import get_settings
from django_jobs.store.brief import IDLE
from django_jobs.store.statements import run

LOCK_SPACE = 0x646A6F62  # "djob": keeps our advisory locks apart from those of others
LOCK_PATIENCE = 1000  # milliseconds; a claim holds the lock for one statement


def limits_of(queues: Sequence[str]) -> dict[str, int]:
    """Return the limits of those queues that have one in the settings."""
    rules = get_settings().queues
    return {name: rules[name]["limit"] for name in queues if "limit" in rules.get(name, {})}


def with_room(queues: Sequence[str], limits: Mapping[str, int], *, using: str) -> list[str]:
    """Leave out the queues in which as many jobs run as may."""
    if not limits:
        return list(queues)
    params = {"queues": list(limits), "limits": list(limits.values())}
    full = {row["queue_name"] for row in run("queries/places", params, using=using) if row["places"] <= 0}
    return [name for name in queues if name not in full]


@contextmanager
def locked(queues: Collection[str], resources: Collection[str] = (), *, using: str) -> Iterator[None]:
    """Keep other claims from these queues and resources until the block's transaction ends: its counts stay true.

    The block's statements see everything that was committed before the lock was given, whatever isolation level the
    project chose. On SQLite the transaction itself is the lock.

    Raises:
        OperationalError: Somebody else held a lock for longer than a claim takes.
    """
    connection = connections[using]
    begins = not connection.in_atomic_block
    with transaction.atomic(using=using):
        if connection.vendor == "postgresql":
            keys = sorted(
                {_key(name) for name in [*queues, *(f"resource {name}" for name in resources)]}
            )  # in one order, or two claims could wait for each other
            with connection.cursor() as cursor:
                if begins:
                    cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
                cursor.execute(
                    "SELECT set_config('lock_timeout', %s, true),"
                    " set_config('idle_in_transaction_session_timeout', %s, true), pg_advisory_xact_lock(%s, k)"
                    " FROM unnest(%s::int[]) AS k",
                    [str(LOCK_PATIENCE), str(IDLE), LOCK_SPACE, keys],
                )
        yield


def _key(name: str) -> int:
    return zlib.crc32(name.encode()) - 2**31
