"""What a matrix came to: which faults were survived, and for what was not, everything that is needed to repair it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from django_jobs.testing.cells import KINDS, Cell, Plot
from django_jobs.testing.repairs import Finding
from django_jobs.testing.seen import Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something that is wrong after a fault; ``cell`` is None for the run without one."""

    cell: Cell | None
    finding: Finding
    seen: Seen

    @property
    def place(self) -> str:
        """Point and kind."""
        return str(self.cell) if self.cell else "without any fault"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport:
    """The runs of a matrix: ``cells`` are the faults that hit, ``failures`` what is wrong after them."""

    plot: Plot
    cells: tuple[Cell, ...]
    dry: Seen
    failures: tuple[Failure, ...]
    expect: int | None = None

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def points(self) -> tuple[str, ...]:
        """The points that were hit, in the order in which the job comes to them."""
        return tuple(dict.fromkeys(cell.place for cell in self.cells))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of faults that hit."""
        hit = {cell.kind for cell in self.cells}
        return tuple(kind for kind in KINDS if kind in hit)

    def check(self) -> None:
        """Check that every run came to the same.

        Raises:
            AssertionError: One did not; or not one fault hit, so that nothing is proved.
        """
        if self.failures:
            raise AssertionError(self.text)
        if not self.cells:
            raise AssertionError(self.text)

    @property
    def text(self) -> str:
        """The report: each repair once, with the first fault that needs it in full and the others by name."""
        if not self.failures:
            return self._praise
        hit = {str(failure.cell) for failure in self.failures if failure.cell}
        first = f"{self._name} does not survive {len(hit)} of {len(self.cells)} faults."
        if not hit:
            first = f"{self._name} is not right without any fault."
        ordered = sorted(self.failures, key=lambda failure: failure.finding.repair)
        parts = [list(group) for _, group in groupby(ordered, key=lambda failure: failure.finding.repair)]
        parts.sort(key=lambda group: self.failures.index(group[0]))
        return "\n\n".join([first, *("\n".join(self._part(group)) for group in parts)])

    @property
    def table(self) -> str:
        """One line per point, one column per kind: ``ok``, ``FAILED`` or ``-`` where the fault could not hit."""
        failed = {failure.cell for failure in self.failures}
        ran = {(cell.place, cell.kind): "FAILED" if cell in failed else "ok" for cell in self.cells}
        width = max((len(place) for place in self.points), default=5)
        lines = [f"{'point':{width}}  " + "  ".join(f"{kind:11}" for kind in self.kinds).rstrip()]
        for place in self.points:
            cells = "  ".join(f"{ran.get((place, kind), '-'):11}" for kind in self.kinds)
            lines.append(f"{place:{width}}  {cells}".rstrip())
        return "\n".join(lines)

    @property
    def _praise(self) -> str:
        if not self.cells:
            return f"Not one fault hit {self._name}, so nothing is proved. Choose other kinds or points."
        counted = f", and {self.dry.counted} effects each time" if self.dry.counted else ""
        return f"{self._name} survives {len(self.cells)} faults at {len(self.points)} points: the same end{counted}."

    @property
    def _name(self) -> str:
        return self.plot.handler.definition.job_type

    def _part(self, group: list[Failure]) -> Iterator[str]:
        one = group[0]
        yield one.place
        yield f"  found:    {one.finding.found}"
        yield f"  expected: {one.finding.expected}"
        yield f"  REPAIR:   {one.finding.repair}"
        yield from (f"    {line}" for line in one.seen.table.splitlines())
        if one.cell is not None:
            yield f"  again:    {self.again(one.cell)}"
        if others := list(dict.fromkeys(failure.place for failure in group[1:] if failure.place != one.place)):
            yield f"  the same: {', '.join(others)}"

    def again(self, cell: Cell) -> str:
        """Return the line of Python that runs one fault alone."""
        key = f", key={self.plot.key!r}" if self.plot.key else ""
        return (
            f"crash_matrix.check(handler={self._name!r}, payload={dict(self.plot.payload)!r}{key}, "
            f"kinds=({cell.kind!r},), points=({cell.place!r},), …)"
        )
