"""The crash matrix: a job of a project, hit at every point that it comes to, by every kind of fault."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from django_jobs.testing.repairs import check_dry, compare
from django_jobs.testing.seen import Eye, Seen
from django_jobs.testing.writes import RepeatableWriteWarning

EACH = 3  # times of one point that are hit: the fourth effect of a loop is as good as the third
Handler = str | DurableJob[..., Any]
Points = Literal["reached"] | Sequence[str]


class CrashMatrix:
    """Runs one job again and again, each time with another fault, and compares what is left with a run without one.

    Args:
        jobs: The kit of the test.
        downstream: The fake provider that the job talks to, if there is one: its ledger is then looked at too.
    """

    def __init__(self, jobs: JobsKit, downstream: FakeDownstream | None = None) -> None:
        self._jobs = jobs
        self._downstream = downstream

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
                project.
            setup: Called before each run.
            reset: Called before each run and at the end, to empty what no transaction takes back.
            start: Called instead of the enqueue, for a job that comes of something else, such as an event.
            may_review: Whether a job may be left to a person, where nobody can find out what became of a request.

        Raises:
            AssertionError: A run came to something else; the message names point, kind and repair.
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
    ) -> CrashReport:
        """Do what :meth:`check` does, and return the report whatever it says."""
        plot = Plot(handler=_declared(handler), payload=dict(payload or {}), key=key, start=start)
        bench = _Bench(self._jobs, self._downstream, plot, effects, rows, setup, reset)
        dry, reached = bench.dry()
        failures = [Failure(cell=None, finding=found, seen=dry) for found in check_dry(dry, expect=expect)]
        cells = [] if failures else list(_cells(reached, _kinds(kinds), points))
        hit = []
        for cell in cells:
            seen = bench.hit(cell)
            if seen is None:
                continue
            hit.append(cell)
            found = compare(seen, dry, expect=expect, may_review=may_review)
            failures += [Failure(cell=cell, finding=finding, seen=seen) for finding in found]
        return CrashReport(plot=plot, cells=tuple(hit), dry=dry, failures=tuple(failures), expect=expect)


@dataclass(frozen=True, slots=True)
class _Bench:
    jobs: JobsKit
    downstream: FakeDownstream | None
    plot: Plot
    effects: Callable[[], int] | None
    rows: Callable[[], Any] | None
    setup: Callable[[], object] | None
    reset: Callable[[], object] | None

    def dry(self) -> tuple[Seen, list[str]]:
        with self._watched() as (eye, lines), JobsFaults(self.jobs) as faults:
            self.plot.begin()
            self.jobs.run_until_idle()
            return eye.look(tuple(lines)), list(faults.points_reached)

    def hit(self, cell: Cell) -> Seen | None:
        """Return what is left after a fault; None when the fault never came, because nothing went that way."""
        with self._watched() as (eye, lines):
            came = run_cell(cell, self.plot, self.jobs)
            return eye.look(tuple(dict.fromkeys(lines))) if came else None

    @contextmanager
    def _watched(self) -> Iterator[tuple[Eye, list[str]]]:
        lines: list[str] = []
        with fresh(self.jobs, self.downstream, self.reset), _noticed(lines):
            if self.setup is not None:
                self.setup()
            eye = Eye(using=self.jobs.using, effects=self.effects, rows=self.rows, downstream=self.downstream)
            yield eye, lines
        if self.reset is not None:
            self.reset()


@contextmanager
def _noticed(lines: list[str]) -> Iterator[None]:
    """Collect the handler's lines that write what a crash repeats, instead of warning about them."""
    with warnings.catch_warnings():
        shown = warnings.showwarning
        warnings.simplefilter("always", RepeatableWriteWarning)

        def show(message: Any, category: Any, filename: str, lineno: int, *rest: Any, **more: Any) -> None:
            if issubclass(category, RepeatableWriteWarning):
                lines.append(f"{filename}:{lineno}")
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
