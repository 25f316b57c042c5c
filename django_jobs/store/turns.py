"""The turns of serial keys: of each key one job at a time may be claimed, in the order in which they became due.

Ready jobs with a key arrive in a lane that no claim looks at. Whoever settles a key holds its row: if nobody has the
turn, or who had it has ended, the job that has been due for longest gets it and moves to where claims find it; all
others stand behind. A job keeps the turn through retries and waits, until it has ended.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence

from django.db import connections
from django.db.models import Exists, OuterRef

from django_jobs import telemetry
from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import JobState
from django_jobs.models import Job, SerialTurn
from django_jobs.store.brief import afresh
from django_jobs.store.statements import run

AT_ONCE = 500  # keys; what is more is settled at the next look
MOVED = 2000  # jobs that one look lets stand behind


def arrived(queues: Sequence[str], *, using: str) -> list[str]:
    """Return keys of which a ready job has arrived in one of these queues since the last look."""
    rows = run("queries/arrived", {"queues": list(queues), "limit": AT_ONCE}, using=using)
    return sorted({row["serial_key"] for row in rows})


def stale(*, using: str, limit: int = AT_ONCE) -> list[str]:
    """Return keys of which the turn is nobody's any more, because its job has ended."""
    rows = run("queries/stale_turns", {"limit": limit}, using=using)
    return [row["key"] for row in rows]


def settle_turns(keys: Collection[str], *, using: str) -> list[uuid.UUID]:
    """Give the turn of each key to whom it belongs; a key that somebody else settles just now is left to them.

    Rows that others hold are left to the next look: nobody waits here for a job, and no caller's transaction for this.

    Returns:
        The jobs that may be claimed now and could not before.
    """
    if not keys:
        return []
    with afresh(using):
        turns = _held(sorted(set(keys)), using)
        standing = _standing(turns, using)
        _pass_on([turn for turn in turns if turn.job_id not in standing], using)
        given = [turn for turn in turns if turn.job_id is not None]
        params = {"jobs": [turn.job_id for turn in given], "keys": [turn.key for turn in given], "limit": MOVED}
        moved = run("queries/give_turn", params, using=using)
        run("queries/stand_behind", params, using=using)
        _forget([turn for turn in turns if turn.job_id is None], using)
    for row in moved:
        telemetry.emit("serial.turn", job_id=row["id"], serial_key=row["serial_key"])
    return [row["id"] for row in moved]


def _held(keys: list[str], using: str) -> list[SerialTurn]:
    """Lock the rows of these keys, made where there is none; without those that others hold."""
    rows = SerialTurn.objects.using(using)
    known = set(rows.filter(key__in=keys).values_list("key", flat=True))
    missing = [SerialTurn(id=uuid7(), key=key) for key in keys if key not in known]
    rows.bulk_create(missing, ignore_conflicts=True)
    found = rows.filter(key__in=keys).order_by("key")
    if connections[using].features.has_select_for_update_skip_locked:
        found = found.select_for_update(skip_locked=True)
    return list(found)


def _standing(turns: list[SerialTurn], using: str) -> set[uuid.UUID]:
    """Return the jobs among those with a turn that still need it."""
    held = [turn.job_id for turn in turns if turn.job_id is not None]
    jobs = Job.objects.using(using).filter(pk__in=held, finished_at__isnull=True)
    return set(jobs.exclude(state=JobState.DEAD_LETTERED, serial_skips=True).values_list("pk", flat=True))


def _pass_on(turns: list[SerialTurn], using: str) -> None:
    """Let the turn of each key go to the job that has been due for longest, or to nobody if none is due."""
    rows = run("queries/next_in_turn", {"keys": [turn.key for turn in turns]}, using=using) if turns else []
    following = {row["key"]: row["id"] for row in rows}
    for turn in turns:
        turn.job_id = following.get(turn.key)
    SerialTurn.objects.using(using).bulk_update(turns, ["job_id"])


def _forget(turns: list[SerialTurn], using: str) -> None:
    """Remove the rows of keys of which no job is ready; else they are looked at again, whatever a clock says now."""
    if turns:
        ready = Job.objects.using(using).filter(serial_key=OuterRef("key"), state="queued").exclude(serial_key="")
        rows = SerialTurn.objects.using(using).filter(pk__in=[turn.pk for turn in turns])
        rows.filter(~Exists(ready)).delete()
