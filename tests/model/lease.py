"""One job, its workers, a reaper and an operator: who may write to the job, and how often it can be tried.

It stands for ``store.claim``, ``renew``, ``succeed``, ``fail``, ``dead_letter``, ``snooze``, ``release``, ``rescue``,
``cancel``, ``cancel_running``, ``replay`` and ``discard``: the guard of each is the attempt's id, made by the claimer. A
worker may die or stall anywhere; a lease may end at any moment; the database may be restored to an earlier state, after
which its counters repeat and the workers of before still run. Which moves are allowed is read from the product's own table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from django_jobs.domain.states import TRANSITIONS
from tests.model.found import Found, Step, put, search

WAITING, RUNNING, SUCCEEDED, DEAD, CANCELLED, DISCARDED = (
    "waiting",
    "running",
    "succeeded",
    "dead",
    "cancelled",
    "discarded",
)
NAMES = {"scheduled": WAITING, "queued": WAITING, "failed": WAITING, "dead_lettered": DEAD}
MOVES = {
    (NAMES.get(source, str(source)), NAMES.get(target, str(target)))
    for move in TRANSITIONS
    for source in move.sources
    for target in move.targets
} | {(DEAD, DISCARDED)}
FAILURES, LOSSES, FREE = 2, 2, 1  # of one generation, before a human decides
MOST_CLAIMS = 8  # of one generation: each end but a free one is charged, and losses are counted between two ends


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the statements do; a mutant switches one of them."""

    success_is_guarded: bool = True
    failure_is_guarded: bool = True
    guard_is_the_id: bool = True  # and not the attempt's number, which a restored database gives again
    guard_asks_for_the_state: bool = True  # the id alone stays on the row of a job that was taken back
    rows_commit_with_success: bool = True
    somebody_reaps: bool = True
    rescue_is_guarded: bool = True  # it takes back the attempt that was looked at, no other
    rescue_asks_again: bool = True  # whether the lease is still over
    losses_count: bool = True
    snooze_keeps_counters: bool = True
    releases_count: bool = True
    replay_keeps_numbers: bool = True
    replay_zeroes_counters: bool = True
    replay_asks_for_the_state: bool = True
    cancel_asks_for_the_state: bool = True
    # What may happen in this world.
    restores: bool = False
    operators: bool = True
    replays: int = 0
    workers: int = 2


class Job(NamedTuple):
    """The row; ``claims`` counts those of its generation, ``asked`` that somebody wants it cancelled."""

    state: str = WAITING
    attempt: int = 0
    number: int = 0
    over: bool = False
    failures: int = 0
    losses: int = 0
    free: int = 0
    claims: int = 0
    replays: int = 0
    asked: bool = False
    rows: int = 0  # what the handler wrote, once per committed run


class Worker(NamedTuple):
    """Where a worker stands, and under which attempt."""

    at: str = "idle"  # idle, handler, wrote (its rows, in a transaction of their own)
    attempt: int = 0
    number: int = 0


class World(NamedTuple):
    """``ids``: attempt ids that were made so far; ``look``: the attempt that the reaper saw; ``saved``: the backup."""

    job: Job = Job()
    workers: tuple[Worker, ...] = ()
    ids: int = 0
    look: tuple[int, int] = (0, 0)
    saved: Job | None = None
    restored: bool = False


class Search:
    """Every order of events under some rules."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def run(self) -> Found:
        """Search to the end."""
        first = World(workers=(Worker(),) * self.rules.workers)
        return search(first, self.steps, self.broken, is_end=lambda world: world.job.state not in (WAITING, RUNNING))

    def steps(self, world: World) -> Iterator[Step[World]]:
        """Yield everything that may happen next, each judged by the table of moves."""
        for step in self._all(world):
            after = step.world._replace(workers=tuple(sorted(step.world.workers)))
            yield step._replace(world=tidied(after), wrong=step.wrong or forbidden(world, step))

    def _all(self, world: World) -> Iterator[Step[World]]:
        for place, worker in enumerate(world.workers):
            if worker.at != "idle":
                yield from self._worker(world, place, worker)
            elif world.job.state == WAITING and world.job.claims <= MOST_CLAIMS:
                yield claimed(world, place)
                break  # idle workers are alike
        yield from self._reaper(world)
        if self.rules.operators:
            yield from self._operator(world)

    def _worker(self, world: World, place: int, worker: Worker) -> Iterator[Step[World]]:
        job, rules, name = world.job, self.rules, f"attempt {worker.attempt}"
        freed = world._replace(workers=put(world.workers, place, Worker()))
        yield Step(f"{name} dies", freed, fault=True)
        may = self._owns(job, worker)
        if not may:
            yield Step(f"{name} is refused, its worker drops it", freed)
        elif worker.at == "handler" and job.over:
            yield Step(f"{name} has grown and renews its lease", world._replace(job=job._replace(over=False)))
        if may or not rules.success_is_guarded:
            if rules.rows_commit_with_success:
                done = ended(job, SUCCEEDED, rows=job.rows + 1)
                yield Step(f"{name} commits its rows and its success", freed._replace(job=done))
            elif worker.at == "handler":
                wrote = put(world.workers, place, worker._replace(at="wrote"))
                yield Step(
                    f"{name} commits its rows", world._replace(job=job._replace(rows=job.rows + 1), workers=wrote)
                )
            else:
                yield Step(f"{name} commits its success", freed._replace(job=ended(job, SUCCEEDED)))
        if may or not rules.failure_is_guarded:
            yield Step(f"{name} fails", freed._replace(job=self._failed(job)), fault=True)
        if may:
            yield from self._gives_back(freed, name)

    def _gives_back(self, freed: World, name: str) -> Iterator[Step[World]]:
        job, rules = freed.job, self.rules
        spent = job.free >= FREE
        state = DEAD if spent else WAITING
        snoozed = ended(job, state, free=job.free + 1, losses=0)
        if not rules.snooze_keeps_counters:
            snoozed = snoozed._replace(failures=0, free=0)
        yield Step(f"{name} snoozes", freed._replace(job=snoozed), fault=True)
        if not spent:
            released = ended(job, WAITING, free=job.free + rules.releases_count)
            yield Step(f"{name} is released", freed._replace(job=released), fault=True)
        if job.asked:
            yield Step(f"{name} stops: cancelled", freed._replace(job=ended(job, CANCELLED)))

    def _owns(self, job: Job, worker: Worker) -> bool:
        """What ``WHERE state = 'running' AND attempt_id = ...`` says."""
        if job.state != RUNNING and self.rules.guard_asks_for_the_state:
            return False
        same = job.attempt == worker.attempt if self.rules.guard_is_the_id else job.number == worker.number
        return same and job.attempt > 0

    def _failed(self, job: Job) -> Job:
        failures = job.failures + 1
        return ended(job, DEAD if failures >= FAILURES else WAITING, failures=failures, losses=0)

    def _reaper(self, world: World) -> Iterator[Step[World]]:
        job, rules = world.job, self.rules
        if job.state == RUNNING and not job.over:
            yield Step("the lease ends", world._replace(job=job._replace(over=True)))
        if job.state == RUNNING and job.over and rules.somebody_reaps and world.look[0] == 0:
            yield Step("a reaper sees the lost attempt", world._replace(look=(job.attempt, job.number)))
        if world.look[0]:
            gone = world._replace(look=(0, 0))
            same = job.attempt == world.look[0] if rules.guard_is_the_id else job.number == world.look[1]
            may = job.state == RUNNING and (same or not rules.rescue_is_guarded)
            if not may or (rules.rescue_asks_again and rules.rescue_is_guarded and not job.over):
                yield Step("the reaper finds that it moved on", gone)
                return
            wrong = "" if job.over else "an attempt was taken back whose lease holds"
            losses = job.losses + rules.losses_count
            state = CANCELLED if job.asked else DEAD if losses >= LOSSES else WAITING
            yield Step(
                "the reaper takes the job back", gone._replace(job=ended(job, state, losses=losses)), wrong=wrong
            )

    def _operator(self, world: World) -> Iterator[Step[World]]:
        job, rules = world.job, self.rules
        if job.state == WAITING or (job.state not in (RUNNING, CANCELLED) and not rules.cancel_asks_for_the_state):
            yield Step("somebody cancels it", world._replace(job=ended(job, CANCELLED)), fault=True)
        if job.state == RUNNING and not job.asked:
            yield Step("somebody asks for its end", world._replace(job=job._replace(asked=True)), fault=True)
        if job.state == DEAD:
            yield Step("somebody discards it", world._replace(job=ended(job, DISCARDED)), fault=True)
        over = job.state == DEAD or (job.state == SUCCEEDED and not rules.replay_asks_for_the_state)
        if over and job.replays < rules.replays:
            yield Step("somebody replays it", world._replace(job=self._replayed(job)), fault=True)
        if rules.restores and world.saved is None and job.state == RUNNING:
            yield Step("a backup is made before the claim", world._replace(saved=unclaimed(job)), fault=True)
        if rules.restores and world.saved is not None and not world.restored:
            yield Step(
                "the backup is restored", world._replace(job=world.saved, look=(0, 0), restored=True), fault=True
            )

    def _replayed(self, job: Job) -> Job:
        again = ended(job, WAITING, replays=job.replays + 1, claims=0, asked=False)
        if self.rules.replay_zeroes_counters:
            again = again._replace(failures=0, losses=0, free=0)
        return again if self.rules.replay_keeps_numbers else again._replace(number=0)

    def broken(self, world: World) -> str:
        """Say which promise a world breaks."""
        job = world.job
        if job.rows > 1:
            return "the handler's rows were committed twice"
        if job.state == SUCCEEDED and job.rows != 1:
            return "a success without the handler's rows"
        if job.claims > MOST_CLAIMS:
            return "it is claimed again and again"
        if job.state == DEAD and job.replays and job.claims == 1 and not job.free and job.failures > 1:
            return "a replay had no more than one failure"
        holders = [worker for worker in world.workers if worker.at != "idle" and self._owns(job, worker)]
        if len(holders) > 1 and job.state == RUNNING:
            return "two workers hold the job at once"
        live = [worker.number for worker in world.workers if worker.at != "idle"]
        if len(set(live)) < len(live) and not world.restored:
            return "one attempt number was given twice"
        return ""


def claimed(world: World, place: int) -> Step[World]:
    """Lease the job to a worker."""
    job, attempt = world.job, world.ids + 1
    taken = job._replace(
        state=RUNNING, attempt=attempt, number=job.number + 1, over=False, claims=job.claims + 1, asked=False
    )
    worker = Worker("handler", attempt, job.number + 1)
    after = world._replace(job=taken, ids=attempt, workers=put(world.workers, place, worker))
    return Step(f"a worker claims it as attempt {attempt}, number {taken.number}", after)


def ended(job: Job, state: str, **changes: int) -> Job:
    """End the attempt; its id stays visible to a guard that does not ask for the state."""
    return job._replace(state=state, over=False, **changes)


def unclaimed(job: Job) -> Job:
    """The row as it was before its claim."""
    return job._replace(state=WAITING, attempt=0, number=job.number - 1, claims=job.claims - 1, over=False, asked=False)


def forbidden(before: World, step: Step[World]) -> str:
    """Say that a move is not in the product's table; a restored row moves as it likes."""
    source, target = before.job.state, step.world.job.state
    same_attempt = before.job.attempt == step.world.job.attempt
    if source == target and (source != SUCCEEDED or same_attempt):
        return ""
    if (source, target) in MOVES or step.told.startswith("the backup"):
        return ""
    return f"a {source} job became {target}"


def tidied(world: World) -> World:
    """Give the ids that are in use small numbers again: only which of them are equal matters."""
    used = sorted({w.attempt for w in world.workers} | {world.job.attempt, world.look[0]} - {0})
    used = [number for number in used if number]
    new = {0: 0} | {old: number for number, old in enumerate(used, 1)}
    saved = world.saved
    return world._replace(
        job=world.job._replace(attempt=new[world.job.attempt]),
        workers=tuple(worker._replace(attempt=new[worker.attempt]) for worker in world.workers),
        look=(new[world.look[0]], world.look[1]),
        ids=len(used),
        saved=saved,
    )
