"""The crash matrix: a job of a project, hit at every point that it comes to, by every kind of fault."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from django_jobs.define import registry
from django_jobs.define.definition import DurableJob
from django_jobs.exceptions import KitError
from django_jobs.faults import checked
from django_jobs.testing.cells import KINDS, Cell, Plot, run_cell
from django_jobs.testing.downstream import FakeDownstream
from django_jobs.testing.enqueued import type_of
from django_jobs.testing.faults import JobsFaults
from django_jobs.testing.fresh import fresh
from django_jobs.testing.kit import JobsKit
from django_jobs.testing.matrix_report import CrashReport, Failure
from django_jobs.testing.repairs import can_compare, check_dry, compare
from django_jobs.testing.seen import Eye, Seen
from django_jobs.testing.tables import databases_of
from django_jobs.testing.writes import RepeatableWriteWarning

EACH = 3  # times of one point that are hit: the fourth effect of a loop is as good as the third
LOST = Cell(point="claim.after_commit", nth=1, kind="kill")  # before anything of the job has run
Handler = str | DurableJob[..., Any]
Points = Literal["reached"] | Sequence[str]


class CrashMatrix:
    """Runs one job again and again, each time with another fault, and compares what is left with a run without one.

    Args:
        jobs: The kit of the test.
        downstream: The fake provider that the job talks to, if there is one: its ledger is then looked at too.
        databases: The aliases that are looked at and rolled back; default: all that the test may use.
    """

    def __init__(
        self,
        jobs: JobsKit,
        downstream: FakeDownstream | None = None,
        *,
        databases: Collection[str] | None = None,
    ) -> None:
        self._jobs = jobs
        self._downstream = downstream
        self._databases = databases

    def check(
        self,
        *,
        handler: Handler,
        payload: Mapping[str, Any] | None = None,
        key: str | None = None,
        effects: Callable[[], int] | None = None,
        expect: int | None = None,
        kinds: Sequence[str] = tuple(KINDS),
        points: Points = "reached",
        rows: Callable[[], Any] | None = None,
        setup: Callable[[], object] | None = None,
        reset: Callable[[], object] | None = None,
        start: Callable[[], object] | None = None,
        may_review: bool = False,
        may_fail: bool = False,
        may_vary: Collection[str] = (),
    ) -> CrashReport:
        """Run the job once without a fault and then with each, and fail with what is wrong and how to repair it.

        Every run begins with the rows that the test has made, and its rows are rolled back. The kit's own fakes and
        ``mail.outbox`` are put back too; a ledger of the caller's is for ``reset``.

        Args:
            handler: The job type, or the function with ``@job``.
            payload: Its arguments.
            key: Its idempotency key; default: what the job type declares.
            effects: Counts the effects in the world, for example ``lambda: len(bank.charges)``. What counts is by how
                much it grew. Default: how much the fake provider applied.
            expect: How much that must be; default: as much as without a fault.
            kinds: Of faults: ``kill``, ``lost_commit``, ``zombie``, ``redeliver``.
            points: ``reached`` for all that the job comes to, or names of points, as ``handler.after`` or
                ``effect.after_call:2`` for the second time.
            rows: Returns what must be the same after every run. Default: the number of rows in each table of the
                project, and the values in each column, but for those that differ between runs without a fault.
            setup: Called before each run.
            reset: Called before each run and at the end, to empty what no transaction takes back.
            start: Called instead of the enqueue, for a job that comes of something else, such as an event.
            may_review: Whether a job may be left to a person, where nobody can find out what became of a request.
            may_fail: Whether a job may end without success, for a handler that fails on purpose.
            may_vary: Columns that may differ after a fault, as ``shop_order.tries``; and fields of requests, as
                ``request charge.tries``.

        Raises:
            AssertionError: Without a fault the job does not succeed, or a run came to something else than that; the
                message names point, kind and repair.
            KitError: The arguments cannot be meant so.
        """
        report = self.run(
            handler=handler,
            payload=payload,
            key=key,
            effects=effects,
            expect=expect,
            kinds=kinds,
            points=points,
            rows=rows,
            setup=setup,
            reset=reset,
            start=start,
            may_review=may_review,
            may_fail=may_fail,
            may_vary=may_vary,
        )
        report.check()
        return report

    def run(
        self,
        *,
        handler: Handler,
        payload: Mapping[str, Any] | None = None,
        key: str | None = None,
        effects: Callable[[], int] | None = None,
        expect: int | None = None,
        kinds: Sequence[str] = tuple(KINDS),
        points: Points = "reached",
        rows: Callable[[], Any] | None = None,
        setup: Callable[[], object] | None = None,
        reset: Callable[[], object] | None = None,
        start: Callable[[], object] | None = None,
        may_review: bool = False,
        may_fail: bool = False,
        may_vary: Collection[str] = (),
    ) -> CrashReport:
        """Do what :meth:`check` does, and return the report whatever it says."""
        plot = Plot(handler=_declared(handler), payload=dict(payload or {}), key=key, start=start)
        databases = tuple(self._databases) if self._databases is not None else databases_of(self._jobs.using)
        bench = _Bench(self._jobs, self._downstream, databases, plot, effects, rows, setup, reset)
        dry, reached, noticed = bench.dry()
        kind = plot.handler.definition.job_type
        wrong = check_dry(dry, kind=kind, expect=expect, may_fail=may_fail)
        failures = [Failure(cell=None, finding=found, seen=dry) for found in wrong]
        cells = [] if failures else list(_cells(reached, _kinds(kinds), points))
        hits = [(cell, seen) for cell in cells if (seen := bench.hit(cell)) is not None]
        comparable = [seen for _, seen in hits if can_compare(seen, dry, may_review=may_review)]
        varying = bench.varying(dry, comparable, known=may_vary)
        for cell, seen in hits:
            found = compare(seen, dry, expect=expect, may_review=may_review, may_vary=varying)
            failures += [Failure(cell=cell, finding=finding, seen=seen) for finding in found]
        if not failures:
            for warning in noticed:  # it was harmless here; that it is outside of the success stays worth knowing
                warning.repeat()
        hit = tuple(cell for cell, _ in hits)
        return CrashReport(plot=plot, cells=hit, dry=dry, failures=tuple(failures), expect=expect)


@dataclass(frozen=True, slots=True)
class _Noticed:
    """A warning that a handler's line wrote what a crash repeats."""

    text: str
    filename: str
    lineno: int

    @property
    def line(self) -> str:
        return f"{self.filename}:{self.lineno}"

    def repeat(self) -> None:
        warnings.warn_explicit(self.text, RepeatableWriteWarning, self.filename, self.lineno)


@dataclass(frozen=True, slots=True)
class _Bench:
    jobs: JobsKit
    downstream: FakeDownstream | None
    databases: tuple[str, ...]
    plot: Plot
    effects: Callable[[], int] | None
    rows: Callable[[], Any] | None
    setup: Callable[[], object] | None
    reset: Callable[[], object] | None

    def dry(self) -> tuple[Seen, list[str], list[_Noticed]]:
        with self._watched() as (eye, noticed), JobsFaults(self.jobs) as faults:
            self.plot.begin()
            self.jobs.run_until_idle()
            return eye.look(_lines(noticed)), list(faults.points_reached), list(dict.fromkeys(noticed))

    def hit(self, cell: Cell) -> Seen | None:
        """Return what is left after a fault; None when the fault never came, because nothing went that way."""
        with self._watched() as (eye, noticed):
            came = run_cell(cell, self.plot, self.jobs)
            return eye.look(_lines(noticed)) if came else None

    def varying(self, dry: Seen, hits: Sequence[Seen], *, known: Collection[str]) -> set[str]:
        """Return the values that differ by themselves: ids, times, random ones, the number of the attempt.

        No list of kinds of columns could name them. So where something differs after a fault, the job runs again
        without one, and then with its first attempt lost before anything of it ran. What differs there differs for no
        fault of the handler's. The clock only goes on, so what a later date made differ after a fault differs here too.
        """
        found = set(known)
        looks: tuple[Callable[[], Seen | None], ...] = (lambda: self.dry()[0], lambda: self.hit(LOST))
        for look in looks:
            if all(seen.unlike(dry) <= found for seen in hits):
                break
            other = look()
            if other is not None and (other.jobs, other.rows, other.events) == (dry.jobs, dry.rows, dry.events):
                found |= other.unlike(dry)
        return found

    @contextmanager
    def _watched(self) -> Iterator[tuple[Eye, list[_Noticed]]]:
        noticed: list[_Noticed] = []
        with fresh(self.jobs, self.downstream, self.reset, self.databases), _collected(noticed):
            if self.setup is not None:
                self.setup()
            eye = Eye(
                using=self.jobs.using,
                databases=self.databases,
                effects=self.effects,
                rows=self.rows,
                downstream=self.downstream,
            )
            yield eye, noticed
        if self.reset is not None:
            self.reset()


def _lines(noticed: Sequence[_Noticed]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(warning.line for warning in noticed))


@contextmanager
def _collected(noticed: list[_Noticed]) -> Iterator[None]:
    """Collect the warnings about lines of the handler that write what a crash repeats, instead of showing them."""
    with warnings.catch_warnings():
        shown = warnings.showwarning
        warnings.simplefilter("always", RepeatableWriteWarning)

        def show(message: Any, category: Any, filename: str, lineno: int, *rest: Any, **more: Any) -> None:
            if issubclass(category, RepeatableWriteWarning):
                noticed.append(_Noticed(str(message), filename, lineno))
            else:
                shown(message, category, filename, lineno, *rest, **more)

        warnings.showwarning = show
        yield


def _declared(handler: Handler) -> DurableJob[..., Any]:
    return registry.get(type_of(handler)) if isinstance(handler, str) else handler


def _kinds(kinds: Sequence[str]) -> Sequence[str]:
    unknown = [kind for kind in kinds if kind not in KINDS] if not isinstance(kinds, str) else [kinds]
    if unknown or not kinds:
        msg = f"kinds= takes a sequence of {', '.join(KINDS)}, not {kinds!r}."
        raise KitError(msg)
    return kinds


def _cells(reached: Sequence[str], kinds: Sequence[str], points: Points) -> Iterator[Cell]:
    for point, nth in _places(reached, points):
        for kind in kinds:
            yield Cell(point=point, nth=nth, kind=kind)


def _places(reached: Sequence[str], points: Points) -> Iterator[tuple[str, int]]:
    counted = Counter(reached)
    if points == "reached":
        for point, count in counted.items():
            yield from ((point, nth) for nth in range(1, min(count, EACH) + 1))
        return
    if isinstance(points, str):
        msg = f"points= takes 'reached' or a sequence of names, not {points!r}."
        raise KitError(msg)
    for text in points:
        point, _, number = text.partition(":")
        nth = int(number) if number.isdecimal() else 1
        if counted[checked(point)] < nth:
            told = ", ".join(counted) or "nothing"
            msg = f"Without a fault, the job does not come to {text!r}. It comes to {told}."
            raise KitError(msg)
        yield point, nth
