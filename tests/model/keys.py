"""Idempotency keys: two producers in transactions of their own, the job that holds a key, and time.

It stands for ``enqueue.decide`` with ``store.enqueue`` (the insert decides), ``store.keys.key_holder`` (one read that locks
nothing) and the guarded take-over of an expired key, and for what a completion does with its key: nothing, as the key's
life follows from the job's row. Row locks are held to the end of a transaction; an insert waits for an insert.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.found import Found, Step, put, search

NOBODY = -1
WORKER = 9  # who holds a lock, beside the producers 0 and 1
OPEN, RUNNING, DEAD, DONE, EXPIRED = "open", "running", "dead", "done", "expired"
LIVE = (OPEN, RUNNING, DEAD)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What producers and the completion do; a mutant switches one of them."""

    insert_decides: bool = True  # and not a look before it
    duplicates_lock: bool = False  # as DO UPDATE ... WHERE false does
    take_over_asks_again: bool = True  # whether the key is still the job's that was read
    dead_letters_hold_keys: bool = True
    lifetime_counts: bool = True
    completion_writes_key: bool = False  # in its own transaction
    expiry_comes_later: bool = False  # in a transaction of its own after the success
    # What may happen in this world.
    asks: tuple[tuple[int, ...], tuple[int, ...]] = ((0,), (0,))
    held: tuple[bool, ...] = (True,)  # which keys have a job at the start
    expires: bool = True
    dies: bool = True  # the job may become a dead letter


class Job(NamedTuple):
    """One job; ``expiry``: whether it is written when the key ends, where that must be written."""

    key: int
    state: str = OPEN
    expiry: bool = True


class Key(NamedTuple):
    """The row: the job that it names, what a transaction has put there, and who has locked it."""

    job: int = NOBODY
    pending: int = NOBODY
    locked: int = NOBODY


class Producer(NamedTuple):
    """Which of its keys it asks for, at what point, and which job it read as the holder."""

    at: str = "asks"  # asks, inserts (after a look), reads, replaces, done
    place: int = 0
    read: int = NOBODY


class World(NamedTuple):
    """``made``: jobs of open transactions are in ``jobs`` already, but nobody else sees them."""

    keys: tuple[Key, ...]
    jobs: tuple[Job, ...]
    producers: tuple[Producer, Producer] = (Producer(), Producer())
    worker: str = "idle"  # idle, holds (the job's row), wrote (the success, the expiry is missing)


class Search:
    """Every order of events under some rules."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def run(self) -> Found:
        """Search to the end."""
        holders = [number for number, held in enumerate(self.rules.held) if held]
        keys = tuple(Key(holders.index(n)) if held else Key() for n, held in enumerate(self.rules.held))
        first = World(keys, tuple(Job(number) for number in holders))
        return search(first, self.steps, self.broken, is_end=self.is_end)

    def is_end(self, world: World) -> bool:
        """Whether nothing is under way, and no key of a finished job is held for ever."""
        over = all(producer.at == "done" for producer in world.producers) and world.worker == "idle"
        return over and not any(job.state == DONE and not job.expiry for job in world.jobs)

    def steps(self, world: World) -> Iterator[Step[World]]:
        """Yield everything that may happen next."""
        for number, producer in enumerate(world.producers):
            if producer.at != "done":
                yield from self._producer(world, number, producer)
        yield from self._worker(world)
        for number, job in enumerate(world.jobs):
            if job.state == DONE and job.expiry and self.rules.expires and not self._is_made(world, number):
                yield Step(f"the key of job {number} runs out", with_job(world, number, state=EXPIRED))
            if job.state == DEAD:
                yield Step(f"job {number} is replayed", with_job(world, number, state=OPEN), fault=True)
                yield Step(f"job {number} is discarded", with_job(world, number, state=DONE), fault=True)

    def _producer(self, world: World, number: int, producer: Producer) -> Iterator[Step[World]]:
        asks, name = self.rules.asks[number], f"producer {number}"
        yield Step(f"{name} rolls back", self._ended(world, number, commit=False), fault=True)
        if producer.place == len(asks):
            yield Step(f"{name} commits", self._ended(world, number, commit=True))
            return
        place = asks[producer.place]
        key = world.keys[place]
        if producer.at == "asks":
            yield from self._asks(world, number, place, key)
        elif producer.at == "inserts":
            yield self._made(world, number, place, f"{name} inserts what it did not see")
        elif producer.at == "reads":
            yield from self._reads(world, number, place, key)
        elif key.locked in (NOBODY, number):
            same = key.job == producer.read
            if same or not self.rules.take_over_asks_again:
                yield self._made(world, number, place, f"{name} takes key {place} over from job {producer.read}")
            else:
                yield Step(f"{name} finds key {place} changed", moved(world, number, at="asks"))

    def _asks(self, world: World, number: int, place: int, key: Key) -> Iterator[Step[World]]:
        name = f"producer {number}"
        if key.locked == number:
            yield Step(f"{name} meets its own job", next_ask(world, number))
        elif key.job != NOBODY:
            yield Step(f"{name} cannot insert key {place}", moved(world, number, at="reads"))
        elif not self.rules.insert_decides:
            yield Step(f"{name} looks and sees no key {place}", moved(world, number, at="inserts"))
        elif key.locked == NOBODY:
            yield self._made(world, number, place, f"{name} inserts key {place} with its job")

    def _reads(self, world: World, number: int, place: int, key: Key) -> Iterator[Step[World]]:
        rules, name, job = self.rules, f"producer {number}", world.jobs[key.job]
        if rules.duplicates_lock and key.locked not in (NOBODY, number):
            return
        live = job.state in LIVE if rules.dead_letters_hold_keys else job.state in (OPEN, RUNNING)
        if live or (job.state == DONE and rules.lifetime_counts):
            after = next_ask(world, number)
            if rules.duplicates_lock:
                after = after._replace(keys=put(world.keys, place, key._replace(locked=number)))
            yield Step(f"{name} gets job {key.job} as the duplicate of key {place}", after)
        else:
            yield Step(
                f"{name} reads that key {place} is free again", moved(world, number, at="replaces", read=key.job)
            )

    def _made(self, world: World, number: int, place: int, told: str) -> Step[World]:
        job = len(world.jobs)
        key = world.keys[place]
        after = world._replace(
            jobs=(*world.jobs, Job(place)), keys=put(world.keys, place, key._replace(pending=job, locked=number))
        )
        holder = world.jobs[key.job].state if key.job != NOBODY else EXPIRED
        wrong = "" if holder == EXPIRED else f"a second job under a key whose job is {holder}"
        return Step(told, next_ask(after, number), wrong=wrong)

    def _ended(self, world: World, number: int, *, commit: bool) -> World:
        keys, jobs = [], list(world.jobs)
        for key in world.keys:
            if key.locked == number:
                if key.pending != NOBODY and not commit:
                    jobs[key.pending] = Job(NOBODY, EXPIRED)
                key = Key(key.pending if commit and key.pending != NOBODY else key.job)
            keys.append(key)
        return moved(world._replace(keys=tuple(keys), jobs=tuple(jobs)), number, at="done", place=0)

    def _worker(self, world: World) -> Iterator[Step[World]]:
        rules = self.rules
        if not self.rules.held[0]:
            return
        state, key = world.jobs[0].state, world.keys[0]
        if state == OPEN and world.worker == "idle":
            yield Step(
                "a worker runs job 0 and locks its row", with_job(world, 0, state=RUNNING)._replace(worker="holds")
            )
            if rules.dies:
                yield Step("job 0 becomes a dead letter", with_job(world, 0, state=DEAD), fault=True)
        elif world.worker == "holds":
            waits = rules.completion_writes_key and key.locked not in (NOBODY, WORKER)
            done = with_job(world, 0, state=DONE, expiry=not rules.expiry_comes_later)
            done = done._replace(worker="wrote" if rules.expiry_comes_later else "idle")
            yield Step("job 0 succeeds", done, wrong="a completion waits for a producer" if waits else "")
        elif world.worker == "wrote":
            yield Step("the worker dies", world._replace(worker="idle"), fault=True)
            yield Step("the end of the key is written", with_job(world, 0, expiry=True)._replace(worker="idle"))

    @staticmethod
    def _is_made(world: World, job: int) -> bool:
        return any(key.pending == job for key in world.keys)

    def broken(self, world: World) -> str:
        """Say which promise a world breaks."""
        for place in range(len(world.keys)):
            held = [n for n, job in enumerate(world.jobs) if job.key == place and job.state in LIVE]
            if len([n for n in held if not self._is_made(world, n)]) > 1:
                return "two unfinished jobs under one key"
        waits = [self._waits_for(world, number) for number in (0, 1)]
        return "two producers wait for each other" if waits == [1, 0] else ""

    def _waits_for(self, world: World, number: int) -> int:
        """Return who holds what a producer needs to go on."""
        producer, asks = world.producers[number], self.rules.asks[number]
        if producer.at == "done" or producer.place == len(asks):
            return NOBODY
        key = world.keys[asks[producer.place]]
        blocks = (
            (producer.at == "asks" and key.job == NOBODY)
            or producer.at == "replaces"
            or (producer.at == "reads" and self.rules.duplicates_lock)
        )
        return key.locked if blocks and key.locked != number else NOBODY


def with_job(world: World, number: int, **changes: object) -> World:
    """Return the world with a changed job."""
    return world._replace(jobs=put(world.jobs, number, world.jobs[number]._replace(**changes)))  # type: ignore[arg-type]


def moved(world: World, number: int, **changes: object) -> World:
    """Return the world with a changed producer."""
    producers = put(world.producers, number, world.producers[number]._replace(**changes))  # type: ignore[arg-type]
    return world._replace(producers=(producers[0], producers[1]))


def next_ask(world: World, number: int) -> World:
    """Return the world in which a producer goes on to its next key."""
    return moved(world, number, at="asks", place=world.producers[number].place + 1, read=NOBODY)
