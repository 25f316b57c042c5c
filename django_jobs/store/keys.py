"""Who holds idempotency keys, read without any lock, and the record of the duplicates that they answered."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django_jobs.domain.identity import is_live
from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import JobState, is_unfinished
from django_jobs.models import JobPayload
from django_jobs.store.statements import Row, run

PRUNED = "pruned"  # of a job that somebody deleted without writing down how it had ended
DUPLICATES_PER_HOUR = 20  # rows kept per job and hour; telemetry counts all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHolder:
    """The job that a key stands for; when its row was pruned, ``state`` and ``resolution`` are how it had ended."""

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
    return key_holders(scope, [key], using=using).get(key)


def key_holders(scope: str, keys: Sequence[str], *, using: str) -> dict[str, KeyHolder]:
    """Return who holds each of these keys now, by one statement that locks nothing; a free key is missing."""
    rows = run("queries/key_holders", {"scope": scope, "keys": list(keys)}, using=using)
    return {row["key"]: _holder(row) for row in rows}


def _holder(row: Row) -> KeyHolder:
    gone = row["state"] is None
    live = is_live(
        unfinished=not gone and is_unfinished(row["state"], row["resolution"]),
        finished_at=row["finished_at"],
        ttl=timedelta(seconds=row["ttl_seconds"]),
        expires_at=row["expires_at"],
        now=row["now"],
    )
    return KeyHolder(
        job_id=row["job_id"],
        state=(row["final_state"] or PRUNED) if gone else row["state"],
        resolution=row["final_resolution"] if gone else row["resolution"],
        payload_version=row["payload_version"],
        payload_fingerprint=row["payload_fingerprint"],
        is_live=live,
    )


def stored_arguments(job_id: uuid.UUID, *, using: str) -> str:
    """Return the arguments of a job as they are stored; empty when they were removed, or never were."""
    return JobPayload.objects.using(using).filter(pk=job_id).values_list("arguments", flat=True).first() or ""


def note_duplicate(job_id: uuid.UUID, *, dead: bool, using: str) -> bool:
    """Keep that an enqueue was answered with this job; see :func:`note_duplicates`.

    Returns:
        Whether the owner must be told: ``dead`` is set, and nobody was told about this job for a day.
    """
    return bool(note_duplicates({job_id: dead}, using=using))


def note_duplicates(jobs: Mapping[uuid.UUID, bool], *, using: str) -> set[uuid.UUID]:
    """Keep that enqueues were answered with these jobs, by one insert, which waits for nobody.

    At most ``DUPLICATES_PER_HOUR`` rows are kept per job and hour (a few more when producers meet), so that a producer
    that repeats itself cannot fill the table. Nothing is deleted here: another producer's row is never touched.

    Args:
        jobs: Job ids, each with whether it is a dead letter that waits for a human.
        using: The database.

    Returns:
        The dead letters whose owner must be told: nobody was told about them for a day.
    """
    ids = [uuid7() for _ in jobs]
    params = {
        "ids": ids,
        "job_ids": list(jobs),
        "dead": list(jobs.values()),
        "rows": [(new, job_id, dead) for new, (job_id, dead) in zip(ids, jobs.items(), strict=True)],
        "before": DUPLICATES_PER_HOUR - 1,
    }
    rows = run("queries/note_duplicates", params, using=using)
    return {row["job_id"] for row in rows if row["outcome"] == "alerted"}
