"""What is wrong after a fault, and how to repair it, in plain English."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from django_jobs.testing.seen import REQUEST, Seen

OUTSIDE = (
    "The request was made outside of the ledger. Make it in an operation (@effect) and call that by "
    "context.effect(...): it is then recorded before it is made, and asked about instead of repeated."
)
OPEN_KEY = (
    "The key of the effect is another one in each attempt. Make it of what the effect means to the business "
    "(order:7), never of the attempt's number, the time or a random value."
)
TWO_WRITES = (
    "Rows are written in a transaction of their own, so the next attempt writes them again. Write them inside of "
    "context.complete() or context.step(), or declare the handler without takes_context=True: it is one transaction "
    "with its success then."
)
OTHER_VALUES = (
    "A column has other values than without a fault. What a handler writes in a transaction of its own, the next "
    "attempt writes again: amount - 10 becomes amount - 20. Write it inside of context.complete() or context.step(), "
    "or declare the handler without takes_context=True: it is one transaction with its success then. If the column may "
    'differ after a crash, as a count of the attempts does, say so: may_vary=("table.column",).'
)
PUBLISHED = (
    "The event is stored in a transaction of its own, so the next attempt stores another one. Publish it inside of "
    "context.complete() or context.step(), or in a handler without takes_context=True, and without detached=True."
)
CHANGED = (
    "The request is another one when the job runs again. Fix what it contains before the first request: store it in "
    "the payload, in a row or by context.step(), and read it from there in every attempt."
)
MISSING = (
    "Something tells the next attempt that the effect is done, although it is not: a flag that is written before the "
    "effect, or an error that the handler swallows. Write the flag in context.complete(), after the effect."
)
ASK = (
    "Nobody can find out whether the request was applied. Give the operation a key that the provider honours "
    '(dedupe="key"), or a function that asks the provider (@operation.reconcile). If a person shall decide, pass '
    "may_review=True."
)
LATE = (
    "The operation made its request although its deadline had passed and another attempt had taken over. Pass "
    "call.remaining to the client as its time-out, and call call.check_deadline() right before the first byte."
)
TWICE = (
    "The request was made again under the same key, and the provider applied it again. Say in @effect how long the "
    "provider remembers a key (key_lifetime=), and give it a function that asks (@operation.reconcile)."
)
NEVER_ASKED = (
    "A job that comes of this one was never enqueued. Enqueue it, or publish its event, inside of context.complete(), "
    "in one transaction with what tells the next attempt that it is done."
)
RAISES = (
    "The handler does not stand being run again. Let it look for what an earlier attempt did, and go on from there."
)
INVARIANT = (
    "The rows contradict each other. If the handler writes to tables of django_jobs, let it use the package's "
    "functions instead; if it does not, this is an error of the package: please report it."
)
RUNS_ON = "The job comes to no end: look at the errors of its attempts, and at what it waits for."
EVERY_TIME = (
    "A second enqueue made a second job do it. Declare a key (key=) that says what the job means to the business, so "
    "that whoever asks twice gets the job that is there."
)
FAILS = (
    "The job fails without any fault, so a fault would prove nothing. Mend it, or make what it needs in the test or in "
    "setup=. If it shall fail, pass may_fail=True."
)
FIRST = "This is no matter of crashes: mend the handler, or what the test expects of it, first."

FEW = 3  # values of a column that a report tells
LONGEST = 60  # characters of one of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    found: str
    expected: str
    repair: str


def compare(
    seen: Seen, dry: Seen, *, expect: int | None, may_review: bool, may_vary: Collection[str] = ()
) -> list[Finding]:
    """Return what is wrong after a run with a fault.

    Args:
        seen: The run.
        dry: The one without a fault.
        expect: How many effects there must be; None: as many as in ``dry``.
        may_review: Whether a job may be left to a person.
        may_vary: Names of values that are no finding when they differ, as :attr:`Seen.values` has them.
    """
    broken = list(_invariants(seen))
    if changed := list(_changed(seen, dry)):
        return changed + broken  # what else is wrong comes of that
    wrong = list(_effects(seen, dry, expect, may_review=may_review))
    if can_compare(seen, dry, may_review=may_review):
        wrong += [*_rows(seen, dry), *_events(seen, dry)]
        wrong = wrong or list(_values(seen, dry, may_vary))  # a row too many has values too
    return (wrong or list(_ends(seen, dry))) + broken


def can_compare(seen: Seen, dry: Seen, *, may_review: bool) -> bool:
    """Say whether two runs must have written the same: a job that ended otherwise, or never was, wrote otherwise."""
    if may_review and seen.needs_review:
        return False
    return seen.jobs == dry.jobs or len(seen.jobs) > len(dry.jobs)


def check_dry(seen: Seen, *, kind: str, expect: int | None, may_fail: bool) -> list[Finding]:
    """Return what is wrong before there was any fault.

    Args:
        seen: The run.
        kind: The type of the job that is tested.
        expect: How many effects there must be; None: any number.
        may_fail: Whether jobs may end without success.
    """
    findings = []
    if seen.unfinished:
        findings.append(Finding(found=f"{', '.join(seen.unfinished)} did not end", expected="an end", repair=FIRST))
    elif seen.jobs and not may_fail:
        findings += _failures(seen, kind)
    if not findings and expect is not None and seen.counted is not None and seen.counted != expect:
        findings.append(Finding(found=f"{seen.counted} effects", expected=f"{expect}", repair=FIRST))
    if not seen.jobs:
        findings.append(Finding(found="no job", expected="a job that runs", repair=FIRST))
    return findings + list(_invariants(seen))


def _failures(seen: Seen, kind: str) -> Iterator[Finding]:
    """A job that never succeeds survives every fault: it comes to nothing with it as without it."""
    failed = tuple(job for job in seen.jobs if job[1] == "dead_lettered")
    if not failed and not any(job[:2] == (kind, "succeeded") for job in seen.jobs):
        failed = seen.jobs
    if failed:
        errors = "; ".join(f"{error.rpartition('.')[2]}: {message}" for error, message in dict.fromkeys(seen.errors))
        found = f"{_jobs(failed)}{f', with {errors}' if errors else ''}"
        yield Finding(found=found, expected=f"success of {kind} and of what comes of it", repair=FAILS)


def _changed(seen: Seen, dry: Seen) -> Iterator[Finding]:
    """The ledger's word first: it refused a changed request, so the count alone would not tell why."""
    for kind, message in dict.fromkeys(seen.errors):
        if kind.endswith((".EffectChangedError", ".EffectKeyReusedError")) and (kind, message) not in dry.errors:
            yield Finding(found=f"{kind.rpartition('.')[2]}: {message}", expected="the same request", repair=CHANGED)
            return
    bodies: defaultdict[tuple[str, str | None], set[str]] = defaultdict(set)
    for call in seen.calls:
        if call.key:
            bodies[(call.operation, call.key)].add(str(sorted(call.body.items())))
    for (operation, key), texts in bodies.items():
        if len(texts) > 1:
            found = f"{operation} was asked for under key {key} with {' and with '.join(sorted(texts))}"
            yield Finding(found=found, expected="the same request", repair=CHANGED)


def _effects(seen: Seen, dry: Seen, expect: int | None, *, may_review: bool) -> Iterator[Finding]:
    if seen.needs_review and not dry.needs_review:
        if not may_review:
            yield Finding(found="an effect waits for a person", expected="a job that ends by itself", repair=ASK)
        if (seen.counted or 0) <= (dry.counted or 0):
            return
    wanted = dry.counted if expect is None else expect
    if seen.counted is not None and wanted is not None and seen.counted != wanted:
        repair = _why_more(seen, dry) if seen.counted > wanted else MISSING
        yield Finding(found=f"{seen.counted} effects", expected=f"{wanted}", repair=repair)
    elif seen.operations != dry.operations:
        repair = _why_more(seen, dry) if seen.operations - dry.operations else MISSING
        found = f"the provider applied {_told(seen.operations)}"
        yield Finding(found=found, expected=_told(dry.operations), repair=repair)


def _why_more(seen: Seen, dry: Seen) -> str:
    if len(set(seen.keys)) > len(set(dry.keys)) and len(seen.jobs) == len(dry.jobs):
        return OPEN_KEY
    if len(seen.jobs) > len(dry.jobs):
        return EVERY_TIME
    if any(not entry.in_effect for entry in seen.applied) or not seen.keys:
        return OUTSIDE
    if len(seen.requests) > len(dry.requests):
        return CHANGED
    return LATE if seen.refused else TWICE


def _rows(seen: Seen, dry: Seen) -> Iterator[Finding]:
    if seen.rows != dry.rows:
        found, expected = _differences(seen.rows, dry.rows)
        more = EVERY_TIME if len(seen.jobs) > len(dry.jobs) else TWO_WRITES
        yield Finding(found=f"rows {found}{_at(seen)}", expected=expected, repair=more)


def _events(seen: Seen, dry: Seen) -> Iterator[Finding]:
    if seen.events != dry.events:
        kinds = sorted({*seen.events, *dry.events})
        found, expected = _differences(*({kind: one.events[kind] for kind in kinds} for one in (seen, dry)))
        more = PUBLISHED if seen.events - dry.events else NEVER_ASKED
        if len(seen.jobs) > len(dry.jobs):
            more = EVERY_TIME
        yield Finding(found=f"events {found}", expected=f"events {expected}", repair=more)


def _values(seen: Seen, dry: Seen, may_vary: Collection[str]) -> Iterator[Finding]:
    other = sorted(seen.unlike(dry) - set(may_vary))
    for repair in (OTHER_VALUES, CHANGED):
        names = [name for name in other if name.startswith(REQUEST) == (repair == CHANGED)]
        if names:
            found = "; ".join(f"{name}: {_few(seen, dry, name)}" for name in names)
            expected = "; ".join(f"{name}: {_few(dry, seen, name)}" for name in names)
            yield Finding(found=found + (_at(seen) if repair == OTHER_VALUES else ""), expected=expected, repair=repair)


def _few(seen: Seen, dry: Seen, name: str) -> str:
    """Tell the values that one run has and the other has not, at most three."""
    nothing: Counter[str] = Counter()
    values = sorted((seen.values.get(name, nothing) - dry.values.get(name, nothing)).elements())
    texts = [value if len(value) <= LONGEST else f"{value[:LONGEST]}…" for value in values[:FEW]]
    return ", ".join(texts + ["…"] * (len(values) > FEW)) or "nothing"


def _at(seen: Seen) -> str:
    return f" (written outside of complete() and step(): {'; '.join(seen.lines)})" if seen.lines else ""


def _differences(seen: Any, dry: Any) -> tuple[str, str]:
    if isinstance(seen, dict) and isinstance(dry, dict):
        names = [name for name in {**dry, **seen} if seen.get(name) != dry.get(name)]
        return (
            ", ".join(f"{name}: {seen.get(name)!r}" for name in names),
            ", ".join(f"{name}: {dry.get(name)!r}" for name in names),
        )
    return repr(seen), repr(dry)


def _ends(seen: Seen, dry: Seen) -> Iterator[Finding]:
    if seen.unfinished:
        yield Finding(found=f"{', '.join(seen.unfinished)} did not end", expected="an end", repair=RUNS_ON)
    elif seen.jobs != dry.jobs and not (seen.needs_review and not dry.needs_review):
        yield Finding(found=_jobs(seen.jobs), expected=_jobs(dry.jobs), repair=_why_other_end(seen, dry))


def _why_other_end(seen: Seen, dry: Seen) -> str:
    if len(seen.jobs) > len(dry.jobs):
        return EVERY_TIME
    if len(seen.jobs) < len(dry.jobs):
        return NEVER_ASKED
    return OPEN_KEY if len(set(seen.keys)) > len(set(dry.keys)) else RAISES


def _invariants(seen: Seen) -> Iterator[Finding]:
    for name, meaning, identity in seen.violated:
        yield Finding(found=f"invariant {name} is violated by {identity}", expected=meaning, repair=INVARIANT)


def _jobs(jobs: tuple[tuple[str, str, str], ...]) -> str:
    return ", ".join(f"{kind} {state}" + (f" ({why})" if why else "") for kind, state, why in jobs) or "no job"


def _told(operations: Counter[str]) -> str:
    return "; ".join(f"{name} {count} times" if count > 1 else name for name, count in operations.items()) or "nothing"
