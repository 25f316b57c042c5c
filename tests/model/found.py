"""The search that all models share: breadth first through every order of events, with the shortest way to a problem.

A model gives its first world, a function that yields what may happen next, and what must never be true of a world. It may
also say which worlds are ends: then an end must be within reach of every world by steps that are no faults.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

W = TypeVar("W", bound=Hashable)


class Step(NamedTuple, Generic[W]):
    """One thing that happens: what is told of it, the world after it, and what is wrong with the step itself.

    Faults are crashes, losses and what operators do: nothing may need them to come to an end.
    """

    told: str
    world: W
    fault: bool = False
    wrong: str = ""


Came = dict[W, "tuple[W, str] | None"]


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found: a problem (empty: none) with the shortest way to it, and how many worlds it saw."""

    problem: str
    trace: tuple[str, ...]
    worlds: int

    def __str__(self) -> str:
        steps = "".join(f"\n  {number:2}. {told}" for number, told in enumerate(self.trace, 1))
        return f"{self.problem or 'holds'} ({self.worlds} worlds){steps}"

    def must_hold(self, what: str, *, floor: int) -> None:
        """Print what was found, and fail if a promise was broken or fewer worlds were seen than are recorded."""
        print(f"\n{what}: {self}")
        assert (self.problem, self.trace) == ("", ())
        assert self.worlds >= floor

    def must_break(self, what: str, problem: str) -> None:
        """Print the way to the problem, and fail if another one was found, or none."""
        print(f"\n{what}: {self}")
        assert problem in self.problem
        assert self.trace


def search(
    first: W,
    steps: Callable[[W], Iterable[Step[W]]],
    broken: Callable[[W], str],
    *,
    is_end: Callable[[W], bool] | None = None,
    same: Callable[[W], W] = lambda world: world,
    limit: int = 1_000_000,
) -> Found:
    """Visit every world once; stop at the first problem.

    Args:
        first: The world in which it begins.
        steps: What may happen next in a world.
        broken: Which promise a world breaks; empty: none.
        is_end: Whether nothing is left to do; every world must be able to come to such a one without faults.
        same: One world for all that differ in nothing that matters.
        limit: More worlds are an error of the model: it is to be searched to its end.
    """
    first = same(first)
    came: Came[W] = {first: None}
    before: dict[W, list[W]] = {}
    waiting = deque([first])
    while waiting:
        world = waiting.popleft()
        for step in steps(world):
            after = same(step.world)
            if is_end is not None and not step.fault:
                before.setdefault(after, []).append(world)
            known = after in came
            problem = step.wrong or ("" if known else broken(after))
            if problem:
                return Found(problem, (*way(came, world), step.told), len(came))
            if not known:
                came[after] = (world, step.told)
                waiting.append(after)
                assert len(came) <= limit, f"the model has more than {limit} worlds"
    stuck = _stuck(came, before, is_end) if is_end is not None else None
    return Found("", (), len(came)) if stuck is None else Found("nothing ends any more", way(came, stuck), len(came))


def _stuck(came: Came[W], before: dict[W, list[W]], is_end: Callable[[W], bool]) -> W | None:
    """Return a world, the nearest to the start, from which no end is in reach."""
    good = [world for world in came if is_end(world)]
    seen = set(good)
    while good:
        for world in before.get(good.pop(), ()):
            if world not in seen:
                seen.add(world)
                good.append(world)
    return next((world for world in came if world not in seen), None)


def way(came: Came[W], world: W) -> tuple[str, ...]:
    """Return what happened on the way to a world."""
    told = []
    while (step := came[world]) is not None:
        world, what = step
        told.append(what)
    return tuple(reversed(told))


def put(items: tuple[W, ...], place: int, item: W) -> tuple[W, ...]:
    """Return the items with another one at a place."""
    return (*items[:place], item, *items[place + 1 :])
