"""One job whose lease grows with its progress: seconds, two attempts, and a handler that may stand still.

It stands for ``JobContext.progress``, ``store.renew`` and the claim, which forgets the progress of the attempt before. The
times come from the product's own ``lease_at_renewal``, growth from its ``may_renew``. A holder may renew until it is taken
back, also after its lease has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from django_jobs.domain import lease
from tests.model.found import Found, Step, search

TERMS = lease.LeaseTerms(budget=timedelta(seconds=1), cleanup=timedelta(seconds=1), max_runtime=timedelta(seconds=5))
LEASE, LONGEST = 2, 5
PATIENCE = 1
MOST = 4  # the largest progress


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the claim and the renewal do; a mutant switches one of them."""

    may_renew: Callable[[int | None, int], bool] = lease.may_renew
    lease_at_renewal: Callable[..., timedelta] = lease.lease_at_renewal
    claim_forgets_progress: bool = True
    renewal_is_guarded: bool = True  # by the attempt's id
    renews_until_taken_back: bool = True  # and not only while the lease holds
    attempts: int = 2


class World(NamedTuple):
    """Times are relative: ``age`` since the claim, ``left`` of the lease, ``stood`` since the last growth."""

    state: str = "waiting"
    attempt: int = 0
    stored: int | None = None
    own: int = 0
    age: int = 0
    left: int = 0
    stood: int = 0
    ghost: int = 0  # progress of a handler that was taken back and does not know; 0: none


class Search:
    """Every order of events under some rules."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def run(self) -> Found:
        """Search to the end."""
        return search(World(), self.steps, self.broken, is_end=lambda world: world.state in ("done", "dead"))

    def steps(self, world: World) -> Iterator[Step[World]]:
        """Yield everything that may happen next."""
        if world.state == "waiting":
            stored = None if self.rules.claim_forgets_progress else world.stored
            taken = World("running", world.attempt + 1, stored, left=LEASE, ghost=world.ghost)
            yield Step(f"attempt {taken.attempt} is claimed", taken)
        elif world.state == "running":
            yield from self._running(world)
        if world.ghost and self.rules.renewal_is_guarded:
            yield Step("the old handler is refused", world._replace(ghost=0))
        elif world.ghost and world.ghost < MOST:
            told = "the old handler renews the lease"
            wrong = "an attempt that was taken back renewed"
            yield Step(told, world._replace(stored=world.ghost + 1, left=LEASE, ghost=0), wrong=wrong)

    def _running(self, world: World) -> Iterator[Step[World]]:
        if world.left > -PATIENCE - 1:
            aged = world._replace(age=world.age + 1, left=world.left - 1, stood=min(world.stood + 1, LEASE + 1))
            yield Step("a second passes", aged)
        if world.own < MOST:
            yield self._says(world, world.own + 1, "tells growth")
        if world.own:
            yield self._says(world, world.own, "tells the same again")
        yield Step("it succeeds", world._replace(state="done"))
        if world.left < -PATIENCE:
            last = world.attempt >= self.rules.attempts
            lost = world._replace(state="dead" if last else "waiting", age=0, left=0, stood=0, own=0, ghost=world.own)
            yield Step("it is taken back", lost)

    def _says(self, world: World, value: int, how: str) -> Step[World]:
        rules, grew = self.rules, value > world.own
        after = world._replace(own=value, stood=0 if grew else world.stood)
        told = f"attempt {world.attempt} {how}: {value}"
        late = world.left < 0 and not rules.renews_until_taken_back
        if late or not rules.may_renew(world.stored, value):
            return Step(f"{told}, refused", after, wrong="an attempt that grows may not renew" if grew else "")
        allowed = rules.lease_at_renewal(TERMS, elapsed=timedelta(seconds=world.age)).total_seconds()
        left = max(world.left, int(allowed))
        return Step(f"{told}, {left} s are left", after._replace(stored=value, left=left))

    def broken(self, world: World) -> str:
        """Say which promise a world breaks."""
        if world.state != "running":
            return ""
        if world.left > 0 and world.age + world.left > LONGEST:
            return "a lease goes beyond the longest run"
        if world.stood > LEASE and world.left > 0:
            return "a handler that stands still keeps its lease"
        return ""
