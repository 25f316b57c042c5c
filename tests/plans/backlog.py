"""A million rows in seconds: jobs made by one statement each."""

from __future__ import annotations

import itertools
from typing import Any

from django.db import connection

from django_jobs import store
from tests.factories import JOB_TYPE
from tests.scenes import known, request

_numbers = itertools.count(1)
_COLUMNS = {
    "id": "",  # made by add()
    "job_type": f"'{JOB_TYPE}'",
    "queue_name": "'default'",
    "lane": "''",
    "priority": "0",
    "tenant": "''",
    "payload_version": "1",
    "payload_fingerprint": "''",
    "state": "'queued'",
    "revision": "1",
    "generation": "1",
    "generation_started_at": "now() - interval '1 hour'",
    "unknown_count": "0",
    "transient_count": "0",
    "lost_count": "0",
    "exit_lost_count": "0",
    "silent_lost_count": "0",
    "free_count": "0",
    "unchanged_count": "0",
    "isolation": "''",
    "fence": "0",
    "available_at": "now() - interval '1 hour' + n * interval '1 microsecond'",
    "error_class": "''",
    "error_type": "''",
    "error_fingerprint": "''",
    "dead_reason": "''",
    "code_version": "''",
    "owner": "''",
    "correlation_id": "''",
    "subject": "''",
    "traceparent": "''",
    "created_at": "now() - interval '1 hour'",
}
RUNNING = {
    "state": "'running'",
    "fence": "1",
    "attempt_id": "gen_random_uuid()",
    "lease_owner": "gen_random_uuid()",
    "lease_child": "1",
    "lease_expires_at": "now() + interval '1 hour'",
}
FUTURE = {"state": "'scheduled'", "available_at": "now() + interval '1 hour' + n * interval '1 millisecond'"}
DUE = {"state": "'scheduled'"}
DONE = {"state": "'succeeded'", "fence": "1", "finished_at": "now()"}
DEAD = {"state": "'dead_lettered'", "dead_reason": "'age'", "dead_at": "now()"}


def add(count: int, **columns: str) -> None:
    """Store so many jobs; each column is an SQL expression that may use ``n``."""
    first = next(_numbers) * 2**32  # in rising order: random ids would spread over the whole index
    number = f"('00000000-0000-7000-8000-' || lpad(to_hex({first} + n), 12, '0'))::uuid"
    values = {**_COLUMNS, "id": number, **columns}
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO django_jobs_job ({', '.join(values)}) SELECT {', '.join(values.values())}"
            f" FROM generate_series(1, {count}) AS n"
        )


def settled() -> None:
    """Bring the statistics up to date."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE django_jobs_job, django_jobs_idempotencykey, django_jobs_worker, django_jobs_pause")


def claim_params(room: int = 1, **changes: Any) -> dict[str, Any]:
    """Return the parameters of a claim for the default queue."""
    asked = request(room, types=[known()])
    queues = changes.pop("queues", ["default"])
    return {
        **store.claims._params(asked),
        **store.claims.place_params([]),
        "queues": queues,
        "lanes": [""] * len(queues),
        "limits": [None] * len(queues),
        "rooms": [None] * len(queues),
        "job_types": [JOB_TYPE],
        "versions": [1],
        "leases": [70.0],
        "code_versions": ["test"],
        "attempt_ids": list(asked.attempt_ids),
        "limit": room,
        "suspects": 0,
        "oldest": False,
        **changes,
    }
