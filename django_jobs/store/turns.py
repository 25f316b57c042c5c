"""The turns of serial keys: of each key one job at a time may be claimed, in the order in which they became due.

Ready jobs with a key arrive in a lane that no claim looks at. Whoever settles a key holds its row: if nobody has the
turn, or who had it has ended, the job that has been due for longest gets it and moves to where claims find it; all
others stand behind. A job keeps the turn through retries and waits, until it has ended.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence

from django.db import connections

from django_jobs import telemetry
from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import JobState
from django_jobs.models import Job, SerialTurn
from django_jobs.store.brief import afresh
from django_jobs.store.statements import run

AT_ONCE = 500  # keys; what is more is settled at the next look


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

    Returns:
        The jobs that may be claimed now and could not before.
    """
    if not keys:
        return []
    with afresh(using):
        turns = _held(sorted(set(keys)), using)
        free = [turn for turn in turns if not _has_turn(turn, using)]
        _pass_on(free, using)
        settled = [turn for turn in turns if turn.job_id is not None]
        params = {"jobs": [turn.job_id for turn in settled], "keys": [turn.key for turn in turns]}
        given = run("queries/give_turn", params, using=using)
        run("queries/stand_behind", params, using=using)
        over = [turn.pk for turn in turns if turn.job_id is None]
        SerialTurn.objects.using(using).filter(pk__in=over).delete()
    for row in given:
        telemetry.emit("serial.turn", job_id=row["id"], serial_key=row["serial_key"])
    return [row["id"] for row in given]


def _held(keys: list[str], using: str) -> list[SerialTurn]:
    """Lock the rows of these keys, made where there is none; without those that others hold."""
    rows = SerialTurn.objects.using(using)
    rows.bulk_create([SerialTurn(id=uuid7(), key=key) for key in keys], ignore_conflicts=True)
    found = rows.filter(key__in=keys).order_by("key")
    if connections[using].features.has_select_for_update_skip_locked:
        found = found.select_for_update(skip_locked=True)
    return list(found)


def _has_turn(turn: SerialTurn, using: str) -> bool:
    """Say whether the job that has the turn still needs it."""
    job = Job.objects.using(using).filter(pk=turn.job_id, finished_at__isnull=True).first() if turn.job_id else None
    return job is not None and not (job.state == JobState.DEAD_LETTERED and job.serial_skips)


def _pass_on(turns: list[SerialTurn], using: str) -> None:
    """Let the turn of each key go to the job that has been due for longest, or to nobody if none is due."""
    rows = run("queries/next_in_turn", {"keys": [turn.key for turn in turns]}, using=using) if turns else []
    following = {row["key"]: row["id"] for row in rows}
    for turn in turns:
        turn.job_id = following.get(turn.key)
    SerialTurn.objects.using(using).bulk_update(turns, ["job_id"])
