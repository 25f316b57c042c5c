"""Search through every order of last members, looks and crashes: a batch of two jobs, of which one adds a third.

Whoever ends a member looks whether the batch can be closed; so does maintenance, again and again. A mutant switches one
of the rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.found import Found, Step, put, search

MAINTENANCE = 3  # after the closers of the three members
NOBODY = -1


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What producers, members and closers do."""

    made_at_once: bool = True  # the batch and its members are committed by one transaction
    child_joins_before: bool = True  # who adds a member does so in the transaction of its own end
    looks_after_commit: bool = True  # of the end; not inside its transaction
    closes_once: bool = True  # under a lock, and only what is open
    maintenance: bool = True
    crashes: int = 1


class World(NamedTuple):
    """Members (hidden, running, ended), closers (idle, saw, missed, look, lock, hold), and what is committed."""

    is_made: bool = False
    members: tuple[str, ...] = ("hidden", "hidden", "hidden")
    closers: tuple[str, ...] = ("idle",) * 4
    holder: int = NOBODY
    is_closed: bool = False
    callbacks: int = 0
    crashes: int = 0


class Search:
    """Breadth first through all worlds that the rules allow."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def run(self) -> Found:
        """Search to the end; the first problem has the shortest trace."""
        return search(World(crashes=self.rules.crashes), self.steps, broken, is_end=settled, limit=200_000)

    def steps(self, world: World) -> Iterator[Step[World]]:
        """Yield everything that may happen next."""
        yield from self._made(world)
        for member, state in enumerate(world.members):
            if state == "running":
                yield from self._ends(world, member)
        if self._child_is_late(world):
            yield Step("the third member is added", _with(world, 2, "running"))
        for closer, phase in enumerate(world.closers):
            yield from self._goes_on(world, closer, phase)
            if phase in ("look", "lock", "hold") and world.crashes:
                yield Step(f"c{closer} dies", _done(world, closer)._replace(crashes=world.crashes - 1), fault=True)

    def _made(self, world: World) -> Iterator[Step[World]]:
        members = ("running", "running", "hidden")
        if not world.is_made:
            made = world._replace(is_made=True)
            yield Step("the batch is made", made._replace(members=members) if self.rules.made_at_once else made)
        elif world.members[0] == "hidden":
            yield Step("its members are committed", world._replace(members=members))

    def _ends(self, world: World, member: int) -> Iterator[Step[World]]:
        if not self.rules.looks_after_commit and world.closers[member] == "idle":
            others = [state for place, state in enumerate(world.members) if place != member]
            phase = "missed" if "running" in others else "saw"
            yield Step(f"m{member} looks inside its transaction", _at(world, member, phase))
            return
        after = _with(world, member, "ended")
        if member == 0 and self.rules.child_joins_before:
            after = _with(after, 2, "running")
        phase = {"saw": "lock", "missed": "done"}.get(world.closers[member], "look")
        yield Step(f"m{member} ends", _at(after, member, phase))

    def _child_is_late(self, world: World) -> bool:
        return not self.rules.child_joins_before and world.members[0] == "ended" and world.members[2] == "hidden"

    def _goes_on(self, world: World, closer: int, phase: str) -> Iterator[Step[World]]:
        open_still = "running" in world.members
        if phase == "idle" and closer == MAINTENANCE and self.rules.maintenance and world.is_made:
            if not world.is_closed:
                yield Step("maintenance looks", _at(world, closer, "look"))
        elif phase == "look":
            yield Step(f"c{closer} looks", _done(world, closer) if open_still else _at(world, closer, "lock"))
        elif phase == "lock" and not self.rules.closes_once:
            yield Step(f"c{closer} asks for no lock", _at(world, closer, "hold"))
        elif phase == "lock" and world.holder == NOBODY:
            taken = _done(world, closer) if world.is_closed else _at(world._replace(holder=closer), closer, "hold")
            yield Step(f"c{closer} has the lock", taken)
        elif phase == "hold" and open_still:
            yield Step(f"c{closer} counts, and leaves it", _done(world, closer))
        elif phase == "hold":
            closed = world._replace(is_closed=True, callbacks=world.callbacks + 1)
            yield Step(f"c{closer} closes it", _done(closed, closer))


def _with(world: World, member: int, state: str) -> World:
    return world._replace(members=put(world.members, member, state))


def _at(world: World, closer: int, phase: str) -> World:
    return world._replace(closers=put(world.closers, closer, phase))


def _done(world: World, closer: int) -> World:
    after = _at(world, closer, "idle" if closer == MAINTENANCE else "done")
    return after._replace(holder=NOBODY) if after.holder == closer else after


def broken(world: World) -> str:
    """Say which promise a world breaks."""
    if world.callbacks > 1:
        return "the callback comes twice"
    if world.callbacks and any(state != "ended" for state in world.members):
        return "the callback comes before the end of a member"
    return ""


def settled(world: World) -> bool:
    """Say whether all is done."""
    return world.callbacks == 1 and all(state == "ended" for state in world.members)
