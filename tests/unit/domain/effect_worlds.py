"""The worlds of the effect search: two jobs, their shared row, the requests on the wire, and the provider's memory."""

from __future__ import annotations

from typing import Any, NamedTuple

UNFINISHED = frozenset({"due", "running", "asleep"})
ENDED = frozenset({"succeeded", "dead", "discarded", "cancelled"})


class Job(NamedTuple):
    """One of the two jobs; ``step`` is where its attempt stands, ``send`` the request it waits for."""

    state: str = "new"
    attempts: int = 0
    step: str = ""
    send: int = 0
    adopted: bool = False


class Send(NamedTuple):
    """One request; ``wire``: planned, flying, applied or refused and the answer unread, gone."""

    job: int
    outcome: str
    wire: str
    epoch: int


class World(NamedTuple):
    """Everything there is: two jobs, their shared row, the provider's memory and what it did."""

    jobs: tuple[Job, Job] = (Job(), Job())
    owner: int = 0
    sends: tuple[Send, ...] = ()
    compensation: str = "none"
    found: bool = False
    memory: tuple[tuple[int, str], ...] = ()
    forgotten: int = -1  # keys up to this epoch are forgotten by the provider
    applied: int = 0


def with_job(world: World, number: int, **changes: Any) -> World:
    """Change one job."""
    jobs = list(world.jobs)
    jobs[number] = jobs[number]._replace(**changes)
    return world._replace(jobs=(jobs[0], jobs[1]))


def put(world: World, number: int, send: Send) -> World:
    """Change one send."""
    sends = list(world.sends)
    sends[number] = send
    return world._replace(sends=tuple(sends))


def ruled_out(world: World) -> World:
    """Record that no unclear send was applied."""
    return world._replace(
        sends=tuple(s._replace(outcome="not_applied") if s.outcome in ("open", "unknown") else s for s in world.sends)
    )


def retried(world: World, number: int) -> World:
    """End an attempt without success."""
    spent = world.jobs[number].attempts >= 2
    return with_job(world, number, state="dead" if spent else "due", step="", send=0)


def tidied(world: World) -> World:
    """Forget what no later step reads, so that equal worlds meet."""
    jobs = []
    for job in world.jobs:
        running = job.state == "running"
        jobs.append(
            Job(
                state=job.state,
                attempts=0 if job.state in ENDED else job.attempts,
                step=job.step if running else "",
                send=job.send if running and job.step == "call" else 0,
                adopted=job.adopted and running and job.step == "done",
            )
        )
    return world._replace(jobs=(jobs[0], jobs[1]))


def way(parents: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    """The labels that lead to a world."""
    labels: list[str] = []
    step = parents[world]
    while step is not None:
        labels.append(step[1])
        step = parents[step[0]]
    return labels[::-1]
