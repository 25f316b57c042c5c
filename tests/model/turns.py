"""Search through every order of events around one serial key, with switches for wrong rules.

It stands for ``store/turns.py`` and the statements that put a job into a lane. Whoever settles the key holds its row and
looks twice, whether the turn is still somebody's and who is next, each in a statement of its own; then it moves the jobs,
which are written under their own locks, and commits. A claim looks at its snapshot and writes under the row's lock. That a
holder that lost its job writes nothing is what ``tests/model/lease.py`` shows. Workers are alike, so a trace calls them by
their place in a row that is sorted after each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from tests.model.found import Found, Step, put, search

NEW, HIDDEN, LATER, QUEUED, RUNNING, DEAD, DONE = "new", "hidden", "later", "queued", "running", "dead", "done"
OPEN, ARRIVED, BEHIND, HEAD = "", "~", "~~", "head"
NOBODY = -1
LAST = 2  # the clock goes so far
SETTLING = {"locked", "judged", "chosen", "given"}
Becomes = Callable[..., "World"]  # the world in which an actor is at something else


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the code does; a mutant switches one of them."""

    sweeps: bool = True  # maintenance looks for turns of nobody
    sees_who_waits: bool = True  # and of jobs that have the turn and stand behind all the same
    passes_on: bool = True  # the worker of a job that has ended
    passes_after_commit: bool = True  # of that end; before it the job still has the turn
    settles_under_lock: bool = True
    looks_under_lock: bool = True
    by_due_time: bool = True
    only_due: bool = True  # a job that is due later does not get the turn before that
    retry_keeps_turn: bool = True
    dead_keeps_turn: bool = True  # of a type that blocks
    spares_the_head: bool = True  # who lets others stand behind leaves out who has the turn
    keeps_key_of_ready: bool = True  # the row of a key stays while a job of it is ready
    claim_asks_for_lane: bool = True  # again, under the lock
    arrives_when_due: bool = True  # a promoted job arrives like a new one
    arrives_when_replayed: bool = True
    producer_settles: bool = False  # an enqueue that sees nobody with the turn takes it, without a lock
    # What may happen in this world.
    skips: bool = False  # dead letters give their turn up
    delays: tuple[int, ...] = (1, 0)  # of each job; they are inserted in this order
    workers: int = 2
    tries: int = 2
    faults: int = 1  # deaths of workers and steps of the clock backwards
    orders: int = 1  # cancellations, replays and discards by people


class Job(NamedTuple):
    """One row. It has begun from its first claim until it ends; a replay of one that gave up its turn begins anew."""

    state: str = NEW
    lane: str = OPEN
    due: int = 0
    tries: int = 0
    begun: bool = False


class Actor(NamedTuple):
    """A worker or maintenance: what it is at, and the job it saw, runs or wants to give the turn to."""

    at: str = "idle"
    job: int = NOBODY


class World(NamedTuple):
    """Jobs, the committed turn (``row``: whether its row is there), and who does what."""

    jobs: tuple[Job, ...]
    workers: tuple[Actor, ...]
    keeper: Actor = Actor()
    row: bool = False
    turn: int = NOBODY
    now: int = 0
    faults: int = 0
    orders: int = 0


class Search:
    """Breadth first through all worlds that the rules allow."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def run(self) -> Found:
        """Search to the end; the first problem has the shortest trace."""
        rules = self.rules
        first = World(
            (Job(),) * len(rules.delays), (Actor(),) * rules.workers, faults=rules.faults, orders=rules.orders
        )
        return search(first, self.steps, broken, is_end=self.is_settled, same=_same)

    def steps(self, world: World) -> Iterator[Step[World]]:
        """Yield everything that may happen next."""
        yield from self._producers(world)
        yield from self._time(world)
        for place, actor in enumerate(world.workers):
            yield from self._worker(world, place, actor)
        if self.rules.sweeps:
            yield from self._keeper(world)
        yield from self._people(world)

    # Producers insert in order, and commit in any.

    def _producers(self, world: World) -> Iterator[Step[World]]:
        for number, job in enumerate(world.jobs):
            if job.state == HIDDEN:
                made = job._replace(state=LATER if job.lane == OPEN else QUEUED)
                after = _with(world, number, made)
                if job.lane == HEAD:
                    after = _with(world, number, made._replace(lane=OPEN))._replace(row=True, turn=number)
                yield Step(f"j{number} is committed", after)
        number = next((number for number, job in enumerate(world.jobs) if job.state == NEW), NOBODY)
        if number != NOBODY:
            due = min(world.now + self.rules.delays[number], LAST)
            is_first = self.rules.producer_settles and world.turn == NOBODY
            lane = OPEN if due > world.now else HEAD if is_first else ARRIVED
            yield Step(f"j{number} is inserted, due at {due}", _with(world, number, Job(HIDDEN, lane, due)))

    def _time(self, world: World) -> Iterator[Step[World]]:
        if world.now < LAST:
            yield Step(f"it is {world.now + 1}", world._replace(now=world.now + 1))
        if world.now and world.faults:
            back = world._replace(now=world.now - 1, faults=world.faults - 1)
            yield Step(f"the clock steps back to {back.now}", back, fault=True)
        for number, job in enumerate(world.jobs):
            if job.state == LATER and job.due <= world.now:
                lane = ARRIVED if self.rules.arrives_when_due else OPEN
                yield Step(f"j{number} is promoted", _with(world, number, job._replace(state=QUEUED, lane=lane)))
            elif job.state == RUNNING and Actor("runs", number) not in world.workers:
                yield Step(f"j{number} is taken back", _with(world, number, self._again(job)))

    def _again(self, job: Job) -> Job:
        return job._replace(state=DEAD if job.tries >= self.rules.tries else QUEUED, lane=OPEN)

    # Workers: idle → saw → runs → ended; in between, and at the end of a job, they settle.

    def _worker(self, world: World, place: int, actor: Actor) -> Iterator[Step[World]]:
        def becomes(new: Actor, after: World = world) -> World:
            return after._replace(workers=put(after.workers, place, new))

        if actor.at == "idle":
            for number, job in enumerate(world.jobs):
                if job.state == QUEUED and job.lane == OPEN and job.due <= world.now:
                    yield Step(f"w{place} sees j{number}", becomes(Actor("saw", number)))
            if any(job.state == QUEUED and job.lane == ARRIVED for job in world.jobs):
                yield from self._begin(world, place, becomes)
        elif actor.at == "saw":
            yield self._claim(world, f"w{place}", actor.job, becomes)
        elif actor.at == "runs":
            yield from self._end(world, f"w{place}", actor.job, becomes)
        elif actor.at == "ended":
            yield from self._begin(world, place, becomes)
        else:
            yield self._settle(world, f"w{place}", actor, becomes)
        if world.faults and actor.at not in {"idle", "saw"}:
            yield Step(f"w{place} dies", becomes(Actor(), world._replace(faults=world.faults - 1)), fault=True)

    def _claim(self, world: World, name: str, number: int, becomes: Becomes) -> Step[World]:
        job = world.jobs[number]
        if job.state != QUEUED or (job.lane != OPEN and self.rules.claim_asks_for_lane):
            return Step(f"{name} finds j{number} changed", becomes(Actor()))
        taken = job._replace(state=RUNNING, lane=OPEN, tries=job.tries + 1, begun=True)
        others = [other for place, other in enumerate(world.jobs) if place != number]
        wrong = "two of one key run at once" if any(other.state == RUNNING for other in others) else ""
        if not wrong and any(self._is_under_way(other) for other in others):
            wrong = "a job begins before one that has begun has ended"
        return Step(
            f"{name} claims j{number}", becomes(Actor("runs", number), _with(world, number, taken)), wrong=wrong
        )

    def _is_under_way(self, job: Job) -> bool:
        return job.begun and (job.state in {LATER, QUEUED} or (job.state == DEAD and not self.rules.skips))

    def _end(self, world: World, name: str, number: int, becomes: Becomes) -> Iterator[Step[World]]:
        job = world.jobs[number]
        rules = self.rules
        ended = Actor("ended") if rules.passes_on and rules.passes_after_commit else Actor()
        told = "" if rules.passes_after_commit else " sees that the turn is its job's still, then"
        yield Step(f"{name}{told} ends j{number}", becomes(ended, _with(world, number, job._replace(state=DONE))))
        dead = _with(world, number, job._replace(state=DEAD))
        yield Step(f"j{number} is a dead letter of {name}", becomes(ended, dead), fault=True)
        if job.tries < rules.tries:
            later = job._replace(state=LATER, due=min(world.now + 1, LAST))
            for told, again in (("at once", self._again(job)), ("later", later)):
                yield Step(
                    f"{name} tries j{number} again {told}", becomes(Actor(), _with(world, number, again)), fault=True
                )

    # Settling: (early →) locked → judged → chosen (→ given) → committed.

    def _begin(self, world: World, place: int, becomes: Becomes) -> Iterator[Step[World]]:
        name = "maintenance" if place == NOBODY else f"w{place}"
        if not self.rules.looks_under_lock:
            judged = Actor("early", world.turn if self._stands(world) else NOBODY)
            yield Step(f"{name} looks before it has the key", becomes(judged))
        elif not _is_held(world) or not self.rules.settles_under_lock:
            yield Step(f"{name} has the key", becomes(Actor("locked")))
        else:
            yield Step(f"{name} leaves the key to who has it", becomes(Actor()))

    def _settle(self, world: World, name: str, actor: Actor, becomes: Becomes) -> Step[World]:
        if actor.at == "early":
            new = Actor() if _is_held(world) else Actor("judged", actor.job)
            return Step(f"{name} has the key now" if new.at == "judged" else f"{name} leaves the key", becomes(new))
        if actor.at == "locked":
            stands = self._stands(world)
            told = f"sees that j{world.turn} keeps the turn" if stands else "sees the turn of nobody"
            return Step(f"{name} {told}", becomes(Actor("judged", world.turn if stands else NOBODY)))
        if actor.at == "judged":
            return self._choose(world, name, actor, becomes)
        head = world.jobs[actor.job] if actor.job != NOBODY else None
        moves = head is not None and head.state == QUEUED and head.lane in {ARRIVED, BEHIND}
        if actor.at == "chosen" and head is not None and not moves:
            return Step(f"{name} finds nothing to move of j{actor.job}", becomes(Actor("given", actor.job)))
        after = self._moved(world, actor.job, moves=moves and actor.at == "chosen")
        return Step(f"{name} gives the turn to {_who(actor.job)}", becomes(Actor(), after))

    def _stands(self, world: World) -> bool:
        if world.turn == NOBODY:
            return False
        job = world.jobs[world.turn]
        if job.state == DEAD:
            return self.rules.dead_keeps_turn and not self.rules.skips
        return job.state != DONE and (self.rules.retry_keeps_turn or not (job.state == LATER and job.begun))

    def _choose(self, world: World, name: str, actor: Actor, becomes: Becomes) -> Step[World]:
        if actor.job != NOBODY:
            return Step(f"{name} changes no turn", becomes(Actor("chosen", actor.job)))
        waiting = sorted((job.due, number) for number, job in enumerate(world.jobs) if job.state in {LATER, QUEUED})
        due = [one for one in waiting if one[0] <= world.now]
        chosen = due if self.rules.only_due else waiting
        chosen = chosen if self.rules.by_due_time else sorted(chosen, key=lambda one: one[1])
        target = chosen[0][1] if chosen else NOBODY
        wrong = "the order is not that of due times" if chosen[:1] != due[:1] else ""
        return Step(f"{name} chooses {_who(target)}", becomes(Actor("chosen", target)), wrong=wrong)

    def _moved(self, world: World, target: int, *, moves: bool) -> World:
        jobs = world.jobs
        if moves:
            jobs = put(jobs, target, jobs[target]._replace(lane=OPEN))
        spared = target if self.rules.spares_the_head else NOBODY
        if target != NOBODY:
            jobs = tuple(
                job._replace(lane=BEHIND) if job.state == QUEUED and job.lane == ARRIVED and number != spared else job
                for number, job in enumerate(jobs)
            )
        ready = any(job.state == QUEUED for job in jobs) and self.rules.keeps_key_of_ready
        return world._replace(jobs=jobs, turn=target, row=target != NOBODY or ready)

    def _keeper(self, world: World) -> Iterator[Step[World]]:
        def becomes(new: Actor, after: World = world) -> World:
            return after._replace(keeper=new)

        if world.keeper.at != "idle":
            yield self._settle(world, "maintenance", world.keeper, becomes)
        elif world.row and self._is_stale(world):
            yield from self._begin(world, NOBODY, becomes)

    def _is_stale(self, world: World) -> bool:
        if world.turn == NOBODY:
            return True
        job = world.jobs[world.turn]
        waits = job.state == QUEUED and job.lane != OPEN and self.rules.sees_who_waits
        return waits or job.state == DONE or (job.state == DEAD and self.rules.skips)

    def _people(self, world: World) -> Iterator[Step[World]]:
        if not world.orders:
            return
        said = world._replace(orders=world.orders - 1)
        for number, job in enumerate(world.jobs):
            if job.state in {LATER, QUEUED}:
                yield Step(f"j{number} is cancelled", _with(said, number, job._replace(state=DONE)), fault=True)
            elif job.state == DEAD:
                yield Step(f"j{number} is discarded", _with(said, number, job._replace(state=DONE)), fault=True)
                lane = ARRIVED if self.rules.arrives_when_replayed else OPEN
                again = Job(QUEUED, lane, world.now, begun=not self.rules.skips)
                yield Step(f"j{number} is replayed", _with(said, number, again), fault=True)

    def is_settled(self, world: World) -> bool:
        """Say whether every job has ended, or waits behind a dead letter that blocks."""
        blocks = world.turn != NOBODY and world.jobs[world.turn].state == DEAD and not self.rules.skips
        waiting = {LATER, QUEUED} if blocks else set()
        return all(job.state in {DONE, DEAD} | waiting for job in world.jobs)


def broken(world: World) -> str:
    """Say which promise a world breaks."""
    for number, job in enumerate(world.jobs):
        may_run = job.state == RUNNING or (job.state == QUEUED and job.lane == OPEN)
        if may_run and world.turn != number:
            return "a job may run without the turn"
    return ""


def _is_held(world: World) -> bool:
    return any(actor.at in SETTLING for actor in (*world.workers, world.keeper))


def _with(world: World, number: int, job: Job) -> World:
    return world._replace(jobs=put(world.jobs, number, job))


def _who(number: int) -> str:
    return "nobody" if number == NOBODY else f"j{number}"


def _same(world: World) -> World:
    return world._replace(workers=tuple(sorted(world.workers)))


QUIET = replace(Rules(), sweeps=False, workers=1, faults=0, orders=0)  # one worker that never dies needs no sweep
