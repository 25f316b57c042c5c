"""What counts as lost, stuck, twice and recovered. Pure: it sees what a run left and asks nobody."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

POISON = "poison"
BEFORE, AFTER, END = "before the effect", "after the effect", "at the end"
# A finish within this time of the owner's own return is the owner's.
SAME_MOMENT = 0.5  # seconds


@dataclass(frozen=True, slots=True)
class Execution:
    """One start of a handler, as the witness saw it; times in seconds since 1970."""

    id: int
    key: str
    pid: int
    started: float
    returned: float | None = None
    requested: bool = False

    @property
    def phase(self) -> str:
        """How far it came."""
        if self.returned is not None:
            return END
        return AFTER if self.requested else BEFORE


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the provider; requests with one provider key are applied once."""

    key: str
    provider_key: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A fault met this execution. ``deadly``: its process was killed, so that it cannot have gone on by itself."""

    execution: int
    key: str
    at: float
    phase: str
    deadly: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that a run left: what the jobs did, the rows in the system's database, and the states of its queue."""

    keys: Sequence[str]
    executions: Sequence[Execution]
    requests: Sequence[Request]
    rows: Sequence[str]
    states: Mapping[str, int]
    open_states: frozenset[str]
    failed_states: frozenset[str]
    hits: Sequence[Hit] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The figures of one run, for the table."""

    jobs: int
    hit_before: int
    hit_after: int
    hit_at_end: int
    stuck: int
    failed: int
    lost_effects: int
    duplicate_effects: int
    extra_effects: int
    repeated_requests: int
    lost_rows: int
    duplicate_rows: int
    repeated_executions: int
    recovered: int
    went_on: int
    never: int
    recovery: Mapping[str, float] | None
    poison_deaths: int
    states: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON will have it."""
        return asdict(self)


def judge(evidence: Evidence) -> Verdict:
    """Judge one run when nothing moves any more."""
    normal = [key for key in evidence.keys if not key.startswith(POISON)]
    applied = effects(evidence.requests)
    rows = Counter(evidence.rows)
    starts = Counter(execution.key for execution in evidence.executions)
    hits = first_hits(evidence.hits)
    phases = Counter(hit.phase for hit in hits)
    times = recoveries(hits, evidence.executions)
    found = [seconds for seconds in times if seconds is not None]
    missed = [hit for hit, seconds in zip(hits, times, strict=True) if seconds is None]
    stuck = sum(count for state, count in evidence.states.items() if state in evidence.open_states)
    failed = sum(count for state, count in evidence.states.items() if state in evidence.failed_states)
    # Where nothing is open and nothing failed, the end of the job was on record before the fault.
    all_well = stuck + failed == 0
    went_on = sum(all_well or hit.phase == END or (not hit.deadly and applied[hit.key] > 0) for hit in missed)
    asked = Counter(request.key for request in evidence.requests)
    return Verdict(
        jobs=len(evidence.keys),
        hit_before=phases[BEFORE],
        hit_after=phases[AFTER],
        hit_at_end=phases[END],
        stuck=stuck,
        failed=failed,
        lost_effects=sum(1 for key in normal if applied[key] == 0),
        duplicate_effects=sum(1 for count in applied.values() if count > 1),
        extra_effects=sum(count - 1 for count in applied.values() if count > 1),
        repeated_requests=sum(count - 1 for count in asked.values() if count > 1),
        lost_rows=sum(1 for key in normal if rows[key] == 0),
        duplicate_rows=sum(1 for count in rows.values() if count > 1),
        repeated_executions=sum(starts[key] - 1 for key in normal if starts[key] > 1),
        recovered=len(found),
        went_on=went_on,
        never=len(missed) - went_on,
        recovery=spread(found),
        poison_deaths=sum(count for key, count in starts.items() if key.startswith(POISON)),
        states=dict(evidence.states),
    )


def effects(requests: Iterable[Request]) -> Counter[str]:
    """Return how often each job's effect was applied: each request without a key, and each key once."""
    applied: Counter[str] = Counter()
    seen: set[str] = set()
    for request in requests:
        if request.provider_key not in seen:
            applied[request.key] += 1
        if request.provider_key is not None:
            seen.add(request.provider_key)
    return applied


def first_hits(hits: Iterable[Hit]) -> list[Hit]:
    """Return the first fault that met each execution: one that goes on may meet the next fault too."""
    first: dict[int, Hit] = {}
    for hit in hits:
        first.setdefault(hit.execution, hit)
    return list(first.values())


def recoveries(hits: Iterable[Hit], executions: Iterable[Execution]) -> list[float | None]:
    """Return, for each hit, the seconds from the fault to the next start of the same job; None when there was none."""
    starts: dict[str, list[Execution]] = {}
    for execution in executions:
        starts.setdefault(execution.key, []).append(execution)
    waited = []
    for hit in hits:
        # Later ones by their number: what died may have begun in the moment between the look at the clock and the fault.
        later = [start.started for start in starts.get(hit.key, []) if start.id > hit.execution]
        waited.append(max(0.0, min(later) - hit.at) if later else None)
    return waited


def spread(seconds: Sequence[float]) -> dict[str, float] | None:
    """Return the shortest, the middle and the longest."""
    if not seconds:
        return None
    return {
        "min": round(min(seconds), 1),
        "median": round(statistics.median(seconds), 1),
        "max": round(max(seconds), 1),
    }


def is_stale_finish(closed: float | None, owner_returned: float | None) -> bool:
    """Say whether the job was closed before its new owner came to its end: then the frozen worker closed it.

    Both are seconds since 1970; None stands for never.
    """
    if closed is None:
        return False
    return owner_returned is None or closed < owner_returned - SAME_MOMENT
