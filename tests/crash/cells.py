"""The cells of the matrix: which kind of fault hits which point in which job, and where that cannot be had."""

from __future__ import annotations

from dataclasses import dataclass

from tests.crash.table import (
    CANCELLING,
    CHAINED,
    CHAINED_PLAIN,
    COMPENSATING,
    FAILING,
    LIMITED,
    NOT_ASKED,
    PAYING,
    PLAIN,
    PROGRESSING,
    ROW,
    TABLE,
    Scenario,
)

# The kinds of the matrix, by what is hit. A kind is a fault of the package's kit, or is made of one: see FAULTS.
ENDS = ("kill", "raise", "term")
STANDS = ("freeze", "delay")  # longer than the lease; there is a second worker
PROCESS = (*ENDS, "freeze")  # of these and of CONNECTION the matrix of deliveries is made
CONNECTION = ("lose_request", "lose_reply", "terminate")
REFUSED = ("deadlock", "serialization", "lock_timeout", "disk_full")
SERVER = (*CONNECTION, "crowd", *REFUSED)
KINDS = (*ENDS, *STANDS, *SERVER, "cancel")

# What is armed for a kind that is not one of the kit's: the thread waits while the test does it.
FAULTS = {"delay": "wait", "cancel": "wait"}
LOCKED_BY_IT = {"freeze", "cancel"}  # a thread stands there while others need the database

# What has no transaction of its own on PostgreSQL, so that there is no moment between the change and its commit.
ONE_STATEMENT = {("renew.after_update", PROGRESSING), ("fail.after_update", FAILING), ("finish.after_update", PLAIN)}
# Where a transaction is open that holds SQLite's only write lock: the documented limit of ruling 26.
SQLITE_LOCKED = {
    *(("claim.before", scenario) for scenario in (ROW, LIMITED)),
    *((point, ROW) for point in ("handler.before", "handler.after", "finish.before")),
    ("finish.before", PAYING),
    ("cancel.before", CANCELLING),
    *(("chain.after_next", scenario) for scenario in (CHAINED, CHAINED_PLAIN)),
}


def why_not(point: str, kind: str, scenario: Scenario, vendor: str) -> str:
    """Say why a fault cannot be had at a point; empty if it can."""
    if vendor == "sqlite":
        if kind in SERVER:
            return "SQLite has no connection to lose, and no server that answers"
        if kind == "delay":
            return "tried on PostgreSQL alone"
        if kind in LOCKED_BY_IT and ((point, scenario) in SQLITE_LOCKED or point.endswith(".after_update")):
            return "whoever stands still inside a transaction holds SQLite's only write lock, which is documented"
    elif (point, scenario) in ONE_STATEMENT:
        return "the statement is its own transaction on PostgreSQL"
    if scenario is COMPENSATING and kind == "freeze":
        return "not tried; a thread of it that stands alone is"
    if scenario.stops and kind == "term":
        return "the worker is asked to stop already"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One fault at one point, on one database."""

    point: str
    kind: str
    scenario: Scenario
    code: str
    why_not: str = ""

    def __str__(self) -> str:
        return f"{self.point} x {self.kind} ({self.scenario.name})"


def cells(kind: str, vendor: str) -> list[Cell]:
    """Return the cells of a kind; those that do not apply say why."""
    return [
        Cell(
            point=point,
            kind=kind,
            scenario=scenario,
            code=meant.get(kind, NOT_ASKED),
            why_not=why_not(point, kind, scenario, vendor),
        )
        for point, scenario, meant in TABLE
    ]
