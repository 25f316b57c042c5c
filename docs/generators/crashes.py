"""The tables of the crash matrix, from the table that its tests compare with."""

from __future__ import annotations

from collections.abc import Iterator

from django_jobs.faults.points import POINTS
from docs.generators import markdown
from tests.crash.cells import KINDS, cells
from tests.crash.table import TABLE, Codes

VENDORS = ("postgresql", "sqlite")
MEANING = {
    "kill": "The process is ended by SIGKILL.",
    "raise": "The package's own code raises an exception.",
    "term": "The worker is asked to stop.",
    "freeze": "The process stands still until its lease is over and another worker has taken the job; then it goes on.",
    "delay": "The thread alone stands still until the job is done; the other threads of the process go on.",
    "lose_request": "The connection of the thread ends before its next statement arrives.",
    "lose_reply": "The next statement or COMMIT is done, and its reply is lost.",
    "terminate": "The server ends the session of the thread.",
    "crowd": "The connection ends, and the next one is refused: too many clients.",
    "deadlock": "The server refuses the next statement: deadlock (40P01).",
    "serialization": "The server refuses the next statement: serialization failure (40001).",
    "lock_timeout": "The server refuses the next statement: lock time-out (55P03).",
    "disk_full": "The server refuses the next statement: disk full (53100).",
    "cancel": "An operator asks for the job to be cancelled, and the handler hears it if it can.",
}


def kind_table() -> str:
    """Return one row per kind of fault, with how many cells each database has."""
    rows = ((f"`{kind}`", MEANING[kind], *(_count(kind, vendor) for vendor in VENDORS)) for kind in KINDS)
    return markdown.table(("Kind", "What happens", "Cells on PostgreSQL", "Cells on SQLite"), rows)


def matrix_table() -> str:
    """Return one row per point and job: what follows, and after which kinds."""
    rows = ((f"`{point}`", POINTS[point], scenario.name, _outcomes(meant)) for point, scenario, meant in TABLE)
    return markdown.table(("Point", "What is true there", "Job", "What follows"), rows)


def not_applicable() -> str:
    """Return which cells cannot be had, by database and reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for vendor in VENDORS:
        for kind in KINDS:
            for cell in cells(kind, vendor):
                if cell.why_not:
                    found.setdefault((vendor, cell.why_not), []).append(str(cell))
    rows = ((vendor, why, str(len(named)), _of(named)) for (vendor, why), named in found.items())
    return markdown.table(("Database", "Reason", "Cells", "Which"), rows)


def _count(kind: str, vendor: str) -> str:
    asked = [cell for cell in cells(kind, vendor) if not cell.why_not]
    return str(len(asked)) if asked else "none"


def _outcomes(meant: Codes) -> str:
    codes = dict.fromkeys(meant[kind] for kind in KINDS)
    return "; ".join(f"**{code}**: {', '.join(k for k in KINDS if meant[k] == code)}" for code in codes)


def _of(named: list[str]) -> str:
    kinds = {name.partition(" x ")[2].partition(" (")[0] for name in named}
    if all(len(list(_points(named, kind))) == len(TABLE) for kind in kinds):
        return f"every one of {', '.join(kind for kind in KINDS if kind in kinds)}"
    return ", ".join(f"`{point}`" for point in dict.fromkeys(name.partition(" x ")[0] for name in named))


def _points(named: list[str], kind: str) -> Iterator[str]:
    return (name for name in named if f" x {kind} (" in name)
