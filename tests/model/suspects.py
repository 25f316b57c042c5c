"""A world of two workers and a few jobs, in which every order of deaths, stops, freezes and reports is tried.

A worker has a supervisor and two children of two threads. Jobs are good, or they kill their child (also with the exit
code that a child has when it wants to be replaced), or the whole group, or run past their lease, so that their child is
replaced on purpose. From outside come kills, freezes, stops, leases that run out, and a database that is away when a
process ends. Counting, isolating and convicting are the product's own functions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import NamedTuple

from django_jobs.domain import poison
from django_jobs.domain.retry import Counters, DeadLetter, RetryPolicy
from django_jobs.domain.states import Alone, LossCause

THREADS = 2
LOSSES = 3
LEVEL = {Alone.NO: 0, Alone.CHILD: 1, Alone.WORKER: 2}
EXIT, SILENT, EXPIRED, ENDED = "exit", "silent", "expired", "ended"
KILLERS = {"killer": "p", "faker": "f", "group killer": "o"}

Place = tuple[int, ...]  # (host, child), or nothing


class Job(NamedTuple):
    """One job; ``kind``: good, p kills its child, f does so with the code of a recycling child, o its group, s overruns."""

    kind: str
    state: str = "waiting"  # running, dead, ending (on purpose), gone, gone_stopping; succeeded, poison, buried
    lost: int = 0
    exits: int = 0
    silences: int = 0
    deaths: int = 0  # that it caused and that somebody could report
    at: Place = ()
    alone: int = 0
    ghost: Place = ()  # where the thread of a revoked attempt still runs
    failed: int = 0

    @property
    def is_suspect(self) -> bool:
        """Whether anything is held against it."""
        return bool(self.lost or self.exits or self.silences)


class Faults(NamedTuple):
    """How often each thing may still happen from outside."""

    kills: int = 0
    freezes: int = 0
    expiries: int = 0
    stops: int = 0
    away: int = 0  # a process ends on purpose while the database is away

    def spend(self, name: str) -> Faults:
        """Take one away."""
        return self._replace(**{name: getattr(self, name) - 1})


class World(NamedTuple):
    """Everything there is. A host is up, stopping, frozen, or down until somebody starts it again."""

    hosts: tuple[str, str]
    jobs: tuple[Job, ...]
    faults: Faults


@dataclass(frozen=True)
class Rules:
    """What is decided; each field can be replaced by a wrong one."""

    count: Callable[[Counters, LossCause], Counters] = poison.count_loss
    isolation: Callable[..., Alone] = poison.isolation
    convicts: Callable[..., bool] | None = None  # None: the product's own
    on_purpose: Callable[..., bool] = lambda *, announced, killed, code, stopping: poison.ended_on_purpose(
        announced=announced, killed_by_supervisor=killed
    )
    release_clears: bool = False
    failure_clears: bool = True
    ghosts_are_company: bool = True
    lonely_in_company: bool = False
    alone_on_worker_means_child: bool = False  # the claim says "alone on its worker" although only its child is empty
    only_first_host_reaps: bool = False
    stopping_is_noted: bool = True


@cache
def judged(
    rules: Rules, had: tuple[int, int, int], cause: str, alone: int, stopping: bool
) -> tuple[int, int, int, bool]:
    """Return the counters after a loss, and whether it convicts."""
    company = next(name for name, level in LEVEL.items() if level == alone)
    counters = rules.count(Counters(lost=had[0], exit_lost=had[1], silent_lost=had[2]), LossCause(cause))
    if rules.convicts is not None:
        guilty = counters.lost >= LOSSES and rules.convicts(LossCause(cause), company, stopping=stopping)
    else:
        following = poison.after_loss(
            RetryPolicy(losses=LOSSES),
            cause=LossCause(cause),
            alone=company,
            counters=counters,
            age=timedelta(0),
            useful_left=None,
            stopping=stopping,
        )
        guilty = isinstance(following, DeadLetter)
    return min(counters.lost, 6), min(counters.exit_lost, 4), min(counters.silent_lost, 4), guilty


Step = tuple[str, World, bool]  # what happens, what follows, and whether it happens without outside help


class Search:
    """All worlds that can be reached from the start under ``rules``."""

    def __init__(self, kinds: str, rules: Rules | None = None, faults: Faults | None = None) -> None:
        self.rules = rules or Rules()
        self.start = World(("up", "up"), tuple(sorted(Job(kind) for kind in kinds)), faults or Faults())

    # -- what happens to jobs

    def lose(self, job: Job, cause: str, *, stopping: bool = False, ghost: Place = ()) -> Job:
        """Take a lost attempt back."""
        stopping = stopping and self.rules.stopping_is_noted
        lost, exits, silences, guilty = judged(
            self.rules, (job.lost, job.exits, job.silences), cause, job.alone, stopping
        )
        return job._replace(
            state="poison" if guilty else "waiting",
            lost=lost,
            exits=exits,
            silences=silences,
            at=(),
            alone=0,
            ghost=ghost or job.ghost,
        )

    def report(self, job: Job, **changes: object) -> Job:
        """End an attempt whose handler was heard: suspicion ends."""
        if self.rules.failure_clears:
            job = job._replace(lost=0, exits=0, silences=0)
        return job._replace(at=(), alone=0, **changes)  # type: ignore[arg-type]

    def fail_overdue(self, job: Job) -> Job:
        """Record the failure of a job that ran past its lease: tried once more, then left to a human."""
        return self.report(job, state="buried" if job.failed else "waiting", failed=1)

    def release(self, job: Job) -> Job:
        """Give a job back."""
        given = job._replace(state="waiting", at=(), alone=0)
        return given._replace(lost=0, exits=0, silences=0) if self.rules.release_clears else given

    def end_child(self, jobs: tuple[Job, ...], place: Place, *, to: str) -> tuple[Job, ...]:
        """End one child: what runs in it waits for its supervisor's report, revoked threads are gone."""
        return tuple(
            job._replace(state=to) if job.at == place and job.state == "running" else job
            for job in (job._replace(ghost=()) if job.ghost == place else job for job in jobs)
        )

    def end_host(self, jobs: tuple[Job, ...], host: int, *, stopping: bool) -> tuple[Job, ...]:
        """End a whole worker; a death in it that was not reported yet can never be told apart."""
        to = "gone_stopping" if stopping else "gone"
        ended = []
        for job in jobs:
            job = job._replace(ghost=()) if job.ghost and job.ghost[0] == host else job
            if job.at and job.at[0] == host and job.state in {"running", "dead", "ending"}:
                job = unreported(job)._replace(state=to)
            ended.append(job)
        return tuple(ended)

    # -- what can happen next

    def steps(self, world: World) -> Iterator[Step]:
        """Yield everything that can happen next."""
        for number, job in enumerate(world.jobs):
            if job.state == "waiting":
                yield from self._starts(world, number, job)
            elif job.state == "running" and world.hosts[job.at[0]] in {"up", "stopping"}:
                yield from self._runs(world, number, job)
            yield from self._is_found(world, number, job)
            if job.ghost and world.hosts[job.ghost[0]] in {"up", "stopping"}:
                yield from self._haunts(world, number, job)
        for host in (0, 1):
            yield from self._happens_to_host(world, host)

    def _starts(self, world: World, number: int, job: Job) -> Iterator[Step]:
        need = LEVEL[self.rules.isolation(exit_lost=job.exits, silent_lost=job.silences)]
        for host in (0, 1):
            if world.hosts[host] != "up":
                continue
            here = [other for other in world.jobs if other.at and other.at[0] == host and other.state == "running"]
            ghosts = [other for other in world.jobs if other.ghost and other.ghost[0] == host]
            company = ghosts if self.rules.ghosts_are_company else []
            if not self.rules.lonely_in_company:
                if any(other.alone == 2 for other in here) and not self.rules.alone_on_worker_means_child:
                    continue
                if need == 2 and (here or company) and not self.rules.alone_on_worker_means_child:
                    continue
            for child in (0, 1):
                near = [other for other in here if other.at[1] == child]
                haunt = [other for other in company if other.ghost[1] == child]
                threads = len(near) + sum(other.ghost[1] == child for other in ghosts)
                if threads >= THREADS:
                    continue
                lonely = any(other.alone for other in near) or (need and (near or haunt))
                if lonely and not self.rules.lonely_in_company:
                    continue
                started = job._replace(state="running", at=(host, child), alone=need)
                yield f"{job.kind} starts on {host}.{child}, alone={need}", replace(world, number, started), True

    def _runs(self, world: World, number: int, job: Job) -> Iterator[Step]:
        host, child = job.at
        if job.kind == "g":
            yield "g succeeds", replace(world, number, self.report(job, state="succeeded")), True
            if job.is_suspect and not job.failed:
                yield "g fails", replace(world, number, self.report(job, state="waiting", failed=1)), False
            if world.faults.expiries and not job.ghost and world.hosts[host] == "up":
                lost = self.lose(job, EXPIRED, ghost=job.at)
                spent = world._replace(faults=world.faults.spend("expiries"))
                yield "the lease of g runs out", replace(spent, number, lost), False
        elif job.kind == "s":
            yield from self._overruns(world, number, job)
        elif job.kind in "pf":
            after = replace(world, number, job._replace(deaths=job.deaths + 1))
            code = 64 if job.kind == "f" else -9
            to = self._after_death(world, host, announced=False, code=code)
            yield (
                f"{job.kind} kills {host}.{child}",
                after._replace(jobs=self.end_child(after.jobs, job.at, to=to)),
                True,
            )
        elif job.kind == "o":
            stopping = world.hosts[host] == "stopping"
            killed = job if stopping else job._replace(deaths=job.deaths + 1)  # a stop may always end by a kill
            jobs = self.end_host(replace(world, number, killed).jobs, host, stopping=stopping)
            yield f"o kills {host}", world._replace(jobs=jobs, hosts=put(world.hosts, host, "down")), True

    def _overruns(self, world: World, number: int, job: Job) -> Iterator[Step]:
        after = replace(world, number, self.fail_overdue(job))
        jobs = tuple(
            self.release(other) if other.at == job.at and other.state == "running" else other
            for other in (o._replace(ghost=()) if o.ghost == job.at else o for o in after.jobs)
        )
        yield "s overruns: failed, its child is replaced", world._replace(jobs=jobs), True
        if world.faults.away:
            to = self._after_death(world, job.at[0], announced=True, code=64)
            jobs = self.end_child(world.jobs, job.at, to=to)
            spent = world.faults.spend("away")
            yield "s overruns, nothing can be recorded", world._replace(jobs=jobs, faults=spent), False

    def _after_death(self, world: World, host: int, *, announced: bool, code: int) -> str:
        stopping = world.hosts[host] == "stopping"
        purpose = self.rules.on_purpose(announced=announced, killed=False, code=code, stopping=stopping)
        return "ending" if purpose else "dead"

    def _is_found(self, world: World, number: int, job: Job) -> Iterator[Step]:
        host = job.at[0] if job.at else -1
        reapers = [h for h in (0, 1) if world.hosts[h] in {"up", "stopping"}]
        if self.rules.only_first_host_reaps:
            reapers = [h for h in reapers if h == 0]
        if job.state in {"dead", "ending"} and world.hosts[host] in {"up", "stopping"}:
            if job.state == "dead":
                yield f"{job.kind}: exit", replace(world, number, self.lose(job, EXIT)), True
            elif job.kind == "s":
                yield "s: ran past its lease", replace(world, number, self.fail_overdue(job)), True
            else:
                yield f"{job.kind}: ended", replace(world, number, self.lose(job, ENDED)), True
        if job.state in {"gone", "gone_stopping"} and reapers:
            lost = self.lose(job, SILENT, stopping=job.state == "gone_stopping")
            yield f"{job.kind}: silent", replace(world, number, lost), True
        frozen = job.at and world.hosts[host] == "frozen"
        if (
            frozen
            and job.state in {"running", "dead", "ending"}
            and not job.ghost
            and [h for h in reapers if h != host]
        ):
            ghost = job.at if job.state == "running" else ()
            yield (
                f"{job.kind}: silent, frozen",
                replace(world, number, self.lose(unreported(job), SILENT, ghost=ghost)),
                True,
            )

    def _haunts(self, world: World, number: int, job: Job) -> Iterator[Step]:
        host, child = job.ghost
        yield f"the revoked thread of {job.kind} ends", replace(world, number, job._replace(ghost=())), True
        if job.kind in "pf":
            jobs = self.end_child(world.jobs, job.ghost, to="dead")
            yield f"the revoked thread of {job.kind} kills {host}.{child}", world._replace(jobs=jobs), True
        if job.kind == "o":
            jobs = self.end_host(world.jobs, host, stopping=False)
            yield (
                f"the revoked thread of o kills {host}",
                world._replace(jobs=jobs, hosts=put(world.hosts, host, "down")),
                True,
            )

    def _happens_to_host(self, world: World, host: int) -> Iterator[Step]:
        state, hosts, faults = world.hosts[host], world.hosts, world.faults
        busy = [job for job in world.jobs if job.at and job.at[0] == host and job.state == "running"]
        nobody = not any(other in {"up", "stopping"} for other in hosts)
        if state == "down":
            yield f"{host} is started", world._replace(hosts=put(hosts, host, "up")), True
        elif state == "frozen":
            yield f"{host} goes on", world._replace(hosts=put(hosts, host, "up")), nobody
        elif busy and faults.kills:
            spent = world._replace(faults=faults.spend("kills"))
            for place in sorted({job.at for job in busy}):
                yield (
                    f"outside kill of {place}",
                    spent._replace(jobs=self.end_child(world.jobs, place, to="dead")),
                    False,
                )
            jobs = self.end_host(world.jobs, host, stopping=state == "stopping")
            yield f"outside kill of {host}", spent._replace(jobs=jobs, hosts=put(hosts, host, "down")), False
        if state == "up" and busy and faults.freezes:
            yield f"{host} freezes", World(put(hosts, host, "frozen"), world.jobs, faults.spend("freezes")), False
        if state == "up" and busy and faults.stops:
            yield (
                f"{host} is asked to stop",
                World(put(hosts, host, "stopping"), world.jobs, faults.spend("stops")),
                False,
            )
        if state == "stopping":
            yield from self._stops(world, host)

    def _stops(self, world: World, host: int) -> Iterator[Step]:
        mine = {"running", "dead", "ending"}
        held = [job for job in world.jobs if job.at and job.at[0] == host and job.state in mine]
        down = put(world.hosts, host, "down")
        if all(job.state == "running" for job in held):
            jobs = tuple(self.release(job) if job in held else job for job in self._without_ghosts(world.jobs, host))
            yield f"{host} stops and gives back", World(down, jobs, world.faults), True
        if world.faults.away and any(job.state == "running" for job in held):
            spent = world.faults.spend("away")
            to = self._after_death(world, host, announced=True, code=3)
            jobs = tuple(
                job._replace(state=to) if job in held and job.state == "running" else job
                for job in self._without_ghosts(world.jobs, host)
            )
            yield f"{host} ends its children, nothing can be given back", World(world.hosts, jobs, spent), False
            jobs = self.end_host(world.jobs, host, stopping=True)
            yield f"{host} stops and cannot even sign off", World(down, jobs, spent), False

    def _without_ghosts(self, jobs: tuple[Job, ...], host: int) -> tuple[Job, ...]:
        return tuple(job._replace(ghost=()) if job.ghost and job.ghost[0] == host else job for job in jobs)

    # -- what must hold

    def problem(self, world: World) -> str:
        """Say what is wrong in a world; empty when nothing is."""
        for job in world.jobs:
            if job.deaths > LOSSES:
                return f"a job of kind {job.kind} caused {job.deaths} deaths"
            if job.kind in "gs" and job.state == "poison":
                return "an innocent job was convicted"
            if job.is_suspect and job.state in {"succeeded", "buried"}:
                return "suspicion survives another end"
        return ""

    def run(self, *, limit: int = 400_000) -> Found:
        """Visit every world; stops at the first problem."""
        start = canonical(self.start, self.rules)
        came_from: dict[World, tuple[World, str] | None] = {start: None}
        before: dict[World, list[World]] = {}
        waiting = deque([start])
        while waiting:
            world = waiting.popleft()
            for label, following, alone in self.steps(world):
                following = canonical(following, self.rules)
                if alone:
                    before.setdefault(following, []).append(world)
                if following in came_from:
                    continue
                came_from[following] = (world, label)
                waiting.append(following)
                if problem := self.problem(following):
                    return Found(len(came_from), problem, _trace(came_from, following))
                assert len(came_from) <= limit, "more worlds than this search is meant for"
        return self._liveness(came_from, before)

    def _liveness(self, came_from: dict[World, tuple[World, str] | None], before: dict[World, list[World]]) -> Found:
        """Check that each world can come to its end without outside help."""
        ends = {"succeeded", "poison", "buried"}
        good = [world for world in came_from if all(job.state in ends for job in world.jobs)]
        seen = set(good)
        while good:
            for world in before.get(good.pop(), ()):
                if world not in seen:
                    seen.add(world)
                    good.append(world)
        stuck = next((world for world in came_from if world not in seen), None)
        if stuck is None:
            return Found(len(came_from), "", [])
        return Found(len(came_from), "some job never ends", _trace(came_from, stuck))


class Found(NamedTuple):
    """How many worlds were seen, what was wrong, and how it came to that."""

    worlds: int
    problem: str
    trace: list[str]


def _trace(came_from: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    labels = []
    while (step := came_from[world]) is not None:
        world, label = step
        labels.append(label)
    return labels[::-1]


def unreported(job: Job) -> Job:
    """Take back a child killer's last death when nobody could report it as one."""
    return job._replace(deaths=job.deaths - 1) if job.kind in "pf" and job.state == "dead" and job.deaths else job


def replace(world: World, number: int, job: Job) -> World:
    """Put a job into its place."""
    return world._replace(jobs=(*world.jobs[:number], job, *world.jobs[number + 1 :]))


def put(hosts: tuple[str, str], host: int, state: str) -> tuple[str, str]:
    """Return the hosts after one of them changed."""
    return (state, hosts[1]) if host == 0 else (hosts[0], state)


def canonical(world: World, rules: Rules) -> World:
    """Return one of all worlds that differ only in the names of hosts, children and equal jobs."""
    best = None
    for order in ((0, 1),) if rules.only_first_host_reaps else ((0, 1), (1, 0)):
        hosts = (world.hosts[order[0]], world.hosts[order[1]])
        for flips in ((0, 0), (0, 1), (1, 0), (1, 1)):
            jobs = tuple(sorted(_renamed(job, order, flips) if job.at or job.ghost else job for job in world.jobs))
            if best is None or (hosts, jobs) < best:
                best = (hosts, jobs)
    assert best is not None
    return World(best[0], best[1], world.faults)


def _renamed(job: Job, order: tuple[int, int], flips: tuple[int, int]) -> Job:
    def name(place: Place) -> Place:
        return (order[place[0]], place[1] ^ flips[place[0]]) if place else place

    return job._replace(at=name(job.at), ghost=name(job.ghost))
