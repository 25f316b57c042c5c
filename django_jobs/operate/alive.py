"""Whether a worker lives, and whether it takes jobs, by what it wrote into its heartbeat file; no database is asked.

A worker that is blind lives: to restart it would mend nothing, and would end handlers that run.

``python -m django_jobs.operate.alive PATH`` is the same as ``manage.py jobs alive`` without the start of Django.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from django_jobs.exceptions import HeartbeatFileError
from django_jobs.operate.wording import duration
from django_jobs.worker.heartbeat_file import Told, Vitals, read

MAX_AGE = 30.0  # seconds; the file is written every two seconds
START_TIME = 300.0  # seconds in which a child must have loaded its code


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the worker lives and takes jobs, and why, in one plain sentence."""

    alive: bool
    ready: bool
    text: str


def verdict_on(path: Path, *, max_age: float = MAX_AGE) -> Verdict:
    """Judge a worker by its heartbeat file; ``max_age`` is in seconds."""
    try:
        told = read(path)
    except HeartbeatFileError as error:
        return Verdict(alive=False, ready=False, text=f"Not alive: {error}")
    return verdict_of(told, max_age=max_age, what="the heartbeat file was last written")


def verdict_of(told: Told, *, max_age: float = MAX_AGE, what: str = "its loop last went round") -> Verdict:
    """Judge a worker by what it told; ``max_age`` is in seconds, and ``what`` says in words what was so long ago."""
    who = f"worker {told.vitals.name} (pid {told.vitals.pid})"
    stands_still = _stale(told, max_age, what) or _stuck(told)
    if stands_still:
        return Verdict(alive=False, ready=False, text=f"Not alive: {who}: {stands_still}.")
    vitals = told.vitals
    return Verdict(alive=True, ready=vitals.state == "working", text=f"Alive: {who} is {_state(vitals)}.")


def _stale(told: Told, max_age: float, what: str) -> str:
    if told.age < 0:
        return "the heartbeat file was written before this machine started"
    if told.age > max_age:
        return f"{what} {_time(told.age)} ago, and {_time(max_age)} are allowed"
    return ""


def _stuck(told: Told) -> str:
    """Name a loop that stands still although the database answers; while it does not, waiting for it is no fault."""
    vitals = told.vitals
    if vitals.contact_ago is None or vitals.contact_ago + told.age > vitals.blind_after:
        return ""
    for child in vitals.children:
        since = child.turned_ago + told.age
        if child.ready and since > vitals.stuck_after:
            return f"the loop of child {child.child} (pid {child.pid}) has stood still for {_time(since)}"
        if not child.ready and since > START_TIME:
            return f"child {child.child} (pid {child.pid}) has not loaded its code in {_time(since)}"
    since = vitals.heart_turned_ago + told.age
    if since > vitals.stuck_after:
        return f"the thread that writes heartbeats has stood still for {_time(since)}"
    return ""


def _state(vitals: Vitals) -> str:
    alive = sum(child.ready for child in vitals.children)
    children = f"{alive} of {vitals.processes} {'child' if vitals.processes == 1 else 'children'} ready"
    if vitals.contact_ago is None:
        contact = f"no contact with database {vitals.database!r} yet"
    else:
        contact = f"last contact with database {vitals.database!r} {_time(vitals.contact_ago)} ago"
    why = f", because {vitals.why_blind}" if vitals.blind else ""
    blind = " and blind" if vitals.blind and vitals.state != "blind" else ""
    return f"{vitals.state}{blind}{why}; {children}; {contact}"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else duration(timedelta(seconds=seconds))


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge one file from a command line; returns the exit code: 0 good, 1 not."""
    parser = argparse.ArgumentParser(prog="python -m django_jobs.operate.alive", description=main.__doc__)
    parser.add_argument("path", type=Path, help="The heartbeat file.")
    parser.add_argument("--max-age", type=float, default=MAX_AGE, help="Seconds (default: %(default)s).")
    parser.add_argument("--ready", action="store_true", help="Fail also while the worker takes no jobs.")
    options = parser.parse_args(arguments)
    verdict = verdict_on(options.path, max_age=options.max_age)
    sys.stdout.write(f"{verdict.text}\n")
    return 0 if (verdict.ready if options.ready else verdict.alive) else 1


if __name__ == "__main__":
    sys.exit(main())
