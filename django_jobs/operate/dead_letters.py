"""Dead letters that wait for a human, grouped by their error: so many jobs, one cause."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django_jobs.domain.states import JobState
from django_jobs.models import Job
from django_jobs.store import statements
from django_jobs.store.times import read_now

WINDOW = 10_000
GROUPS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Dead letters of one job type with one error; the texts are those of the newest of them."""

    job_type: str
    fingerprint: str
    jobs: int
    hour: int
    day: int
    week: int
    first: datetime
    last: datetime
    error_type: str
    error_text: str
    dead_reason: str
    owner: str
    code_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The groups of the newest dead letters.

    ``looked_at`` says how many dead letters are in the groups; with ``more`` there are older ones that were not looked
    at, and with ``more_groups`` smaller groups that are not listed.
    """

    groups: tuple[Group, ...]
    looked_at: int
    more: bool
    more_groups: bool


def group_dead_letters(*, using: str, window: int = WINDOW, most: int = GROUPS) -> Groups:
    """Group the newest ``window`` dead letters without a decision, the largest group first; three queries.

    There is no index over fingerprints: the newest are read through the index of what is held, and grouped in memory.
    """
    now = read_now(using)
    given = {
        "window": window + 1,
        "most": most + 1,
        "hour": now - timedelta(hours=1),
        "day": now - timedelta(days=1),
        "week": now - timedelta(days=7),
    }
    rows = statements.run("queries/dead_letter_groups", given, using=using)
    listed = rows[:most]
    newest = _newest([row["id"] for row in listed], using)
    total = rows[0]["total"] if rows else 0
    return Groups(
        groups=tuple(
            Group(
                job_type=row["job_type"],
                fingerprint=row["error_fingerprint"],
                jobs=row["jobs"],
                hour=row["hour"],
                day=row["day"],
                week=row["week"],
                first=row["created_at"],
                last=row["dead_at"],
                **newest[row["id"]],
            )
            for row in listed
        ),
        looked_at=min(total, window),
        more=total > window,
        more_groups=len(rows) > most,
    )


def _newest(ids: list[uuid.UUID], using: str) -> dict[uuid.UUID, dict[str, str]]:
    rows = Job.objects.using(using).filter(pk__in=ids, state=JobState.DEAD_LETTERED)
    wanted = ("pk", "error_type", "payload__error_text", "dead_reason", "owner", "code_version")
    found: dict[uuid.UUID, dict[str, str]] = {
        key: dict.fromkeys(("error_type", "error_text", "dead_reason", "owner", "code_version"), "") for key in ids
    }  # one may have been replayed since
    for key, error_type, text, reason, owner, code in rows.values_list(*wanted):
        found[key] = {
            "error_type": error_type,
            "error_text": text or "",
            "dead_reason": reason,
            "owner": owner,
            "code_version": code,
        }
    return found
