"""Lanes: where in a queue a job waits, so that claims and promotion never walk over rows that cannot run.

Ready jobs stand in the open lane ``""``, or, if they use a resource, in a lane with the resource's name: what is full
costs no claim anything. Jobs that are due later stand in the open lane. Jobs of a kind that nobody may or can run now
wait in a lane of their kind's own. Ready jobs with a serial key stand apart until it is their turn. A kind is a job
type with a payload version, written ``shop.charge_order 1``.
"""

from __future__ import annotations

from django_jobs.domain.identity import check_name
from django_jobs.exceptions import KeyFormatError

OPEN = ""
ASIDE = "!"
ARRIVED = "~"  # nobody has looked yet whose turn it is
BEHIND = "~~"  # another job of the same serial key has the turn
RESOURCE_LIMIT = 100


def kind_text(job_type: str, payload_version: int) -> str:
    """Write a kind."""
    return f"{job_type} {payload_version}"


def kind_parts(kind: str) -> tuple[str, int]:
    """Read what :func:`kind_text` wrote."""
    job_type, _, version = kind.rpartition(" ")
    return job_type, int(version)


def lane_of(kind: str) -> str:
    """Return the lane in which jobs of a kind wait that nobody may or can run now."""
    return ASIDE + kind


def kind_in(lane: str) -> str:
    """Return the kind whose jobs wait in a lane made by :func:`lane_of`."""
    return lane.removeprefix(ASIDE)


def is_aside(lane: str) -> bool:
    """Say whether jobs in this lane are set aside."""
    return lane.startswith(ASIDE)


def waits_for_turn(lane: str) -> bool:
    """Say whether a ready job in this lane waits for the turn of its serial key."""
    return lane.startswith(ARRIVED)


def check_resource(name: object) -> str:
    """Return the name of a resource, or raise :class:`~django_jobs.exceptions.KeyFormatError`."""
    text = check_name(name, what="resource", limit=RESOURCE_LIMIT)
    if text.startswith((ASIDE, ARRIVED)):
        msg = f"The resource {text!r} starts with {text[0]!r}, which marks jobs that stand apart; call it otherwise."
        raise KeyFormatError(msg)
    return text
