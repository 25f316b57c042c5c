"""Search through every order of claims, deaths and answers: an event that ends its process, its neighbour, and a job.

One child delivers both events and runs the job, and is started anew after each death. Somebody outside may kill it too.
A mutant switches one of the rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.found import Found, Step, search

KILLER, NEIGHBOUR = 0, 1
SETTLED = ("done", "dead")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the child and the supervisor do."""

    losses_count: bool = True
    suspects_go_alone: bool = True  # a delivery that was lost is claimed by itself
    company_acquits: bool = True  # only a loss without company convicts
    delivery_waits_for_jobs: bool = True  # a suspected delivery begins only while no job runs
    job_waits_for_deliveries: bool = True  # a suspected job begins only while nothing is delivered
    answers_clear: bool = True
    losses: int = 3
    kills: int = 1  # from outside
    kills_come_first: bool = False  # before the killer is delivered
    most: int = 4  # attempts of the killer, one of which somebody outside may have ended


class Work(NamedTuple):
    """A delivery or a job; ``alone``: as its claim wrote it."""

    state: str = "waiting"
    attempts: int = 0
    lost: int = 0
    alone: bool = False


class World(NamedTuple):
    """Two deliveries, a job, and the kills that are left."""

    events: tuple[Work, Work] = (Work(), Work())
    job: Work = Work()
    kills: int = 1


Told = tuple[str, World]


class Search:
    """Breadth first through all worlds that the rules allow."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def run(self) -> Found:
        """Search to the end; the first problem has the shortest trace."""
        return search(World(kills=self.rules.kills), self.told, self.broken, is_end=settled, limit=200_000)

    def told(self, world: World) -> Iterator[Step[World]]:
        """Yield everything that may happen next; nothing of it is needed to come to an end."""
        for told, after in self.steps(world):
            yield Step(told, after)

    def steps(self, world: World) -> Iterator[Told]:
        """Yield everything that may happen next."""
        delivering = [number for number in (KILLER, NEIGHBOUR) if world.events[number].state == "claimed"]
        if delivering:
            if KILLER in delivering:
                yield "the killer ends the process", self._died(world)
            else:
                yield "the neighbour arrives", self._arrived(world)
        else:
            yield from self._claims(world)
        yield from self._job(world, delivering)
        spared = world.events[KILLER].attempts > 0 and self.rules.kills_come_first
        if world.kills and not spared and (delivering or world.job.state == "claimed"):
            yield "somebody kills the process", self._died(world)._replace(kills=world.kills - 1)

    def _claims(self, world: World) -> Iterator[Told]:
        due = [number for number in (KILLER, NEIGHBOUR) if world.events[number].state == "waiting"]
        suspects = [number for number in due if world.events[number].lost]
        others = due if not self.rules.suspects_go_alone else [number for number in due if number not in suspects]
        beside_job = world.job.state == "claimed"
        if others and not (beside_job and world.job.alone and self.rules.job_waits_for_deliveries):
            yield f"e{others} are claimed", claimed(world, others, alone=False)
        for number in suspects if self.rules.suspects_go_alone else ():
            if not (beside_job and self.rules.delivery_waits_for_jobs):
                yield f"e{number} is claimed alone", claimed(world, [number], alone=True)

    def _job(self, world: World, delivering: list[int]) -> Iterator[Told]:
        job = world.job
        if job.state == "claimed":
            yield "the job succeeds", world._replace(job=job._replace(state="done"))
        elif job.state == "waiting":
            beside_suspect = any(world.events[number].alone for number in delivering)
            if beside_suspect and self.rules.delivery_waits_for_jobs:
                return
            if job.lost and delivering and self.rules.job_waits_for_deliveries:
                return
            taken = job._replace(state="claimed", attempts=job.attempts + 1, alone=job.lost > 0)
            yield "the job is claimed", world._replace(job=taken)

    def _died(self, world: World) -> World:
        first, second = (self._lost(event) for event in world.events)
        return world._replace(events=(first, second), job=self._lost(world.job))

    def _lost(self, work: Work) -> Work:
        if work.state != "claimed":
            return work
        lost = work.lost + self.rules.losses_count
        dead = lost >= self.rules.losses and (work.alone or not self.rules.company_acquits)
        return work._replace(state="dead" if dead else "waiting", lost=lost, alone=False)

    def _arrived(self, world: World) -> World:
        event = world.events[NEIGHBOUR]
        arrived = event._replace(state="done", lost=0 if self.rules.answers_clear else event.lost, alone=False)
        return world._replace(events=(world.events[KILLER], arrived))

    def broken(self, world: World) -> str:
        """Say which promise a world breaks."""
        if world.events[NEIGHBOUR].state == "dead":
            return "the neighbour is convicted"
        if world.job.state == "dead":
            return "the job is convicted"
        if world.events[NEIGHBOUR].state == "done" and world.events[NEIGHBOUR].lost:
            return "something is held against an event that arrived"
        if world.events[KILLER].attempts > self.rules.most:
            return "the killer is claimed again and again"
        return ""


def claimed(world: World, numbers: list[int], *, alone: bool) -> World:
    """Return the world with these events claimed in one batch."""
    events = [
        event._replace(state="claimed", attempts=event.attempts + 1, alone=alone) if number in numbers else event
        for number, event in enumerate(world.events)
    ]
    return world._replace(events=(events[0], events[1]))


def settled(world: World) -> bool:
    """Say whether nothing is left to do."""
    return all(work.state in SETTLED for work in (*world.events, world.job))
