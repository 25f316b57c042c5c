"""What a search of a model finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found: a problem (empty: none) with the shortest way to it."""

    problem: str
    trace: tuple[str, ...]
    worlds: int
