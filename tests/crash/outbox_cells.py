"""The table of deliveries: how often an event that is hit on its way is tried, and how often it arrives.

``same`` once, as without a fault · ``lost`` the attempt is lost and another one delivers · ``again`` the same, and what
was lost had arrived · ``late`` as again, and the confirmation of the old holder comes after it, which is on record and
decides nothing · ``released`` given back unsent · ``refused`` our own error counts against the event once.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.crash.cells import CONNECTION, PROCESS

REMOTE, LOCAL = "remote", "local"  # by HTTP, and as a job of a subscriber


@dataclass(frozen=True, slots=True)
class Course:
    """The outcomes of the attempts, and the arrivals at a destination outside."""

    name: str
    outcomes: tuple[str, ...]
    arrivals: int = 1


SAME = Course("same", ("confirmed",))
LOST = Course("lost", ("lost", "confirmed"))
AGAIN = Course("again", ("lost", "confirmed"), 2)
LATE = Course("late", ("confirmed", "confirmed"), 2)
RELEASED = Course("released", ("released", "confirmed"))
REFUSED = Course("refused", ("nacked", "confirmed"))

Courses = dict[str, Course]


def courses(
    *,
    kill: Course,
    fails: Course = SAME,
    request: Course = SAME,
    reply: Course = SAME,
    term: Course = SAME,
    freeze: Course = SAME,
) -> Courses:
    """Write one line of the table; a session that the server ends is seen as a request that does not arrive."""
    return {
        "kill": kill,
        "raise": fails,
        "lose_request": request,
        "lose_reply": reply,
        "terminate": request,
        "term": term,
        "freeze": freeze,
    }


NOTHING = courses(kill=SAME)
# The worker hears of the stop while it goes on: it delivers, or gives back what it has not begun.
ASKED = {"term": (SAME, RELEASED)}

TABLE: tuple[tuple[str, str, Courses], ...] = (
    ("dispatch.after_claim", REMOTE, courses(kill=LOST, fails=LOST, freeze=LOST)),
    ("dispatch.before_publish", REMOTE, courses(kill=LOST, fails=LOST, freeze=LATE)),
    ("dispatch.after_publish", REMOTE, courses(kill=AGAIN, freeze=LATE)),
    ("dispatch.after_mark", REMOTE, courses(kill=AGAIN)),
    ("dispatch.after_commit", REMOTE, NOTHING),
    ("dispatch.after_claim", LOCAL, courses(kill=LOST, fails=LOST, request=RELEASED, reply=RELEASED, freeze=LOST)),
    ("dispatch.after_mark", LOCAL, courses(kill=LOST, fails=REFUSED, request=RELEASED, reply=RELEASED, freeze=LOST)),
    ("enqueue.after_insert", LOCAL, courses(kill=LOST, fails=REFUSED, request=RELEASED, freeze=LOST)),
    ("dispatch.after_commit", LOCAL, NOTHING),
)
IN_TRANSACTION = {"dispatch.after_mark", "enqueue.after_insert"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxCell:
    """One fault at one point of a delivery, on one database."""

    point: str
    kind: str
    way: str
    allowed: tuple[Course, ...]
    why_not: str = ""

    def __str__(self) -> str:
        return f"{self.point} x {self.kind} ({self.way})"


def why_not(point: str, kind: str, way: str, vendor: str) -> str:
    """Say why a fault cannot be had at a point; empty if it can."""
    if vendor == "sqlite":
        if kind in CONNECTION:
            return "SQLite has no connection to lose"
        if kind == "freeze" and point in IN_TRANSACTION:
            return "a process frozen inside a transaction holds SQLite's only write lock, which is documented"
    elif (point, way) == ("dispatch.after_mark", REMOTE):
        return "the statement is its own transaction on PostgreSQL"
    return ""


def outbox_cells(kind: str, vendor: str) -> list[OutboxCell]:
    """Return the cells of a kind; those that do not apply say why."""
    return [
        OutboxCell(
            point=point,
            kind=kind,
            way=way,
            allowed=ASKED.get(kind, (meant[kind],)),
            why_not=why_not(point, kind, way, vendor),
        )
        for point, way, meant in TABLE
    ]


# How many cells must run at least: a change that makes the matrix smaller has to say so here.
LEAST: dict[str, dict[str, int]] = {
    "postgresql": dict.fromkeys((*PROCESS, *CONNECTION), 8),
    "sqlite": {"kill": 9, "raise": 9, "term": 9, "freeze": 6},
}
