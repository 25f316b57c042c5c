"""django-reliable-outbox: a job, which it runs in the transaction that marks it as delivered."""

from __future__ import annotations

from reliable_outbox import job

from recovery_site import work


@job(name="effect")
def effect(key: str) -> None:
    """The job."""
    work.perform(key, work.orm_row)


def enqueue(keys: list[str]) -> None:
    """Enqueue one job per key."""
    for key in keys:
        effect.enqueue(key)
