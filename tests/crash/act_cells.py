"""The table of acts: whether an act that is hit at a point has happened, so that the next try does it or is told so.

``no`` nothing happened · ``yes`` it is committed, once and for all.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.crash.cells import CONNECTION, PROCESS

HERE = ("raise", *CONNECTION)  # without a process of its own
NO, YES = False, True
COMMITS = {"lose_reply": YES}  # the next thing that this thread sends is COMMIT

# Whether it happened, and where a kind makes a difference.
TABLE: tuple[tuple[str, str, bool, dict[str, bool]], ...] = (
    ("inbox.before_insert", "receive", NO, {}),
    ("inbox.after_insert", "receive", NO, {}),
    ("inbox.after_handler", "receive", NO, COMMITS),
    ("inbox.after_commit", "receive", YES, {}),
    ("inbox.before_insert", "once", NO, {}),
    ("inbox.after_insert", "once", NO, {}),
    ("inbox.after_handler", "once", NO, {}),  # the savepoint of once() is released first
    ("replay.after_lock", "replay", NO, {}),
    ("replay.after_write", "replay", NO, COMMITS),
    ("replay.after_commit", "replay", YES, {}),
    ("redispatch.after_lock", "redispatch", NO, {}),
    ("redispatch.after_write", "redispatch", NO, COMMITS),
    ("redispatch.after_commit", "redispatch", YES, {}),
    ("redispatch.after_lock", "discard", NO, {}),
    ("redispatch.after_write", "discard", NO, COMMITS),
    ("redispatch.after_commit", "discard", YES, {}),
    ("prune.between_batches", "prune jobs", YES, {}),
    ("prune.between_batches", "prune events", YES, {}),
    ("prune.between_batches", "prune messages", YES, {}),
)
SETTLED = ("after_commit", "between_batches")  # no transaction is open there


@dataclass(frozen=True, slots=True, kw_only=True)
class ActCell:
    """One fault at one point of one act, on one database."""

    point: str
    kind: str
    act: str
    done: bool
    why_not: str = ""

    def __str__(self) -> str:
        return f"{self.point} x {self.kind} ({self.act})"


def why_not(point: str, kind: str, act: str, vendor: str) -> str:
    """Say why a fault cannot be had at a point; empty if it can."""
    is_open = not point.endswith(SETTLED)
    if vendor == "sqlite" and kind in CONNECTION:
        return "SQLite has no connection to lose"
    if vendor == "sqlite" and kind == "freeze" and is_open:
        return "a process frozen inside a transaction holds SQLite's only write lock, which is documented"
    if act == "once" and kind == "freeze":
        return "the transaction is the project's own, and idles as long as the project lets it"
    return ""


def act_cells(kind: str, vendor: str) -> list[ActCell]:
    """Return the cells of a kind; those that do not apply say why."""
    return [
        ActCell(
            point=point,
            kind=kind,
            act=act,
            done=others.get(kind, done),
            why_not=why_not(point, kind, act, vendor),
        )
        for point, act, done, others in TABLE
    ]


LEAST: dict[str, dict[str, int]] = {
    "postgresql": {**dict.fromkeys((*PROCESS, *CONNECTION), 19), "freeze": 16},
    "sqlite": {"kill": 19, "raise": 19, "term": 19, "freeze": 7},
}
