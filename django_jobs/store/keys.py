"""Who holds an idempotency key, read without any lock, and the record of the duplicates that it answered."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta

from django_jobs.domain.identity import is_live
from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import JobState, is_unfinished
from django_jobs.store.statements import run

PRUNED = "pruned"
DUPLICATES_PER_HOUR = 20  # rows kept per job and hour; telemetry counts all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHolder:
    """The job that a key stands for; ``state`` is ``pruned`` when its row is gone and only the key is left."""

    job_id: uuid.UUID
    state: str
    resolution: str | None
    payload_version: int
    payload_fingerprint: str
    is_live: bool

    @property
    def waits_for_human(self) -> bool:
        """Whether the job is a dead letter that nobody has settled."""
        return self.state == JobState.DEAD_LETTERED and self.resolution is None


def key_holder(scope: str, key: str, *, using: str) -> KeyHolder | None:
    """Return who holds the key now, or None when nobody does; locks nothing, and reads key, job and clock at once."""
    rows = run("queries/key_holder", {"scope": scope, "key": key}, using=using)
    if not rows:
        return None
    row = rows[0]
    live = is_live(
        unfinished=row["state"] is not None and is_unfinished(row["state"], row["resolution"]),
        finished_at=row["finished_at"],
        ttl=timedelta(seconds=row["ttl_seconds"]),
        expires_at=row["expires_at"],
        now=row["now"],
    )
    return KeyHolder(
        job_id=row["job_id"],
        state=row["state"] or PRUNED,
        resolution=row["resolution"],
        payload_version=row["payload_version"],
        payload_fingerprint=row["payload_fingerprint"],
        is_live=live,
    )


def note_duplicate(job_id: uuid.UUID, *, dead: bool, using: str) -> bool:
    """Keep that an enqueue was answered with this job; an insert, so it waits for nobody.

    At most ``DUPLICATES_PER_HOUR`` rows are kept per job and hour (a few more when producers meet), so that a producer
    that repeats itself cannot fill the table. Nothing is deleted here: another producer's row is never touched.

    Returns:
        Whether the owner must be told: ``dead`` is set, and nobody was told about this job for a day.
    """
    params = {"id": uuid7(), "job_id": job_id, "dead": dead, "before": DUPLICATES_PER_HOUR - 1}
    rows = run("queries/note_duplicate", params, using=using)
    return bool(rows) and rows[0]["outcome"] == "alerted"
