"""The table of the matrix: what must become of a job when a fault of a kind hits a point.

``same`` what the scenario does without a fault: nothing happened, or it was committed already, or it is retried in place ·
``lost`` the attempt is lost and another one runs · ``failed`` the attempt is recorded as failed and another one runs ·
``released`` it was given back and another one runs · ``late`` as lost, and what the holder does afterwards is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

SAME, LOST, FAILED, RELEASED, LATE = "same", "lost", "failed", "released", "late"
PROCESS = ("kill", "raise", "term", "freeze")
CONNECTION = ("lose_request", "lose_reply", "terminate")  # what SQLite, which has no connection to lose, does not know


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A job type that comes to the points: how it ends, and the attempts that come before the one that is hit."""

    name: str
    state: str = "succeeded"
    before: tuple[str, ...] = ()
    own: tuple[str, ...] = ("succeeded",)  # from the attempt that is hit on, without a fault
    then: tuple[str, ...] | None = None  # after an attempt that was lost, failed or released; None: the same as own
    row: int = 1
    effects: int = 0
    returns: int = 0  # effects taken back
    stops: bool = False  # whether the worker is asked to stop while the handler runs
    limits: bool = False  # whether the worker's queues have limits, so that its claims are transactions

    def attempts(self, code: str) -> tuple[str, ...]:
        """Return the outcomes of all attempts that a code of the table means."""
        if code == SAME:
            return self.before + self.own
        hit = LOST if code == LATE else code
        return (*self.before, hit, *(self.own if self.then is None else self.then))


ROW = Scenario(name="row")
LIMITED = Scenario(name="limited", limits=True)
PLAIN = Scenario(name="plain", row=0)
PAYING = Scenario(name="paying", effects=1)
RECONCILED = Scenario(name="reconciled", effects=1, before=("snoozed",))
PROGRESSING = Scenario(name="progressing")
FAILING = Scenario(name="fails_first", own=("failed", "succeeded"), then=("succeeded",))
DYING = Scenario(name="dies_first", own=("lost", "succeeded"), then=("succeeded",))
CANCELLING = Scenario(name="cancels", state="cancelled", own=("cancelled",), row=0)
DUE = Scenario(name="due")
COMPENSATING = Scenario(name="compensating", effects=1, returns=1)
OUTSTAYING = Scenario(name="outstays", own=("released", "succeeded"), then=("succeeded",), stops=True)

Codes = dict[str, str]


def codes(
    *, kill: str, fails: str = FAILED, request: str = SAME, reply: str = SAME, term: str = SAME, freeze: str = LATE
) -> Codes:
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


NOTHING = codes(kill=SAME, fails=SAME, freeze=SAME)
IN_TRANSACTION = codes(kill=LOST, request=FAILED, reply=FAILED)

TABLE: tuple[tuple[str, Scenario, Codes], ...] = (
    ("claim.before", LIMITED, NOTHING),
    ("claim.after_update", LIMITED, {**NOTHING, "lose_reply": RELEASED}),
    ("claim.after_commit", LIMITED, codes(kill=LOST, fails=RELEASED)),
    ("claim.before", ROW, {**NOTHING, "lose_reply": RELEASED}),
    ("claim.after_commit", ROW, codes(kill=LOST, fails=RELEASED)),
    ("handler.before", ROW, IN_TRANSACTION),
    ("handler.before", PLAIN, codes(kill=LOST)),
    ("handler.after", ROW, IN_TRANSACTION),
    ("handler.after", PLAIN, codes(kill=LOST)),
    ("handler.progress", PROGRESSING, codes(kill=LOST)),
    ("effect.before_intent", PAYING, codes(kill=LOST)),
    ("effect.after_intent", PAYING, codes(kill=LOST)),
    ("effect.after_call", PAYING, codes(kill=LOST)),
    ("effect.after_confirm", PAYING, codes(kill=LOST, request=FAILED, reply=FAILED)),
    ("reconcile.before", RECONCILED, codes(kill=LOST)),
    ("reconcile.after_answer", RECONCILED, codes(kill=LOST)),
    ("reconcile.after_commit", RECONCILED, codes(kill=LOST)),
    ("renew.before", PROGRESSING, codes(kill=LOST)),
    ("renew.after_update", PROGRESSING, codes(kill=LOST)),
    ("renew.after", PROGRESSING, codes(kill=LOST, request=FAILED, reply=FAILED)),
    ("finish.before", ROW, IN_TRANSACTION),
    ("finish.before", PLAIN, codes(kill=LOST)),
    ("finish.before", PAYING, IN_TRANSACTION),
    ("finish.after_update", ROW, codes(kill=LOST, request=FAILED)),
    ("finish.after_update", PLAIN, codes(kill=LOST)),
    ("finish.after_update", PAYING, codes(kill=LOST, request=FAILED)),
    ("finish.after_commit", ROW, NOTHING),
    ("finish.after_commit", PLAIN, NOTHING),
    ("fail.before", FAILING, codes(kill=LOST)),
    ("fail.after_update", FAILING, codes(kill=LOST)),
    ("fail.after_commit", FAILING, NOTHING),
    ("release.before", OUTSTAYING, codes(kill=LOST, fails=LOST, freeze=LOST)),
    ("release.after_commit", OUTSTAYING, NOTHING),
    ("reap.after_select", DYING, NOTHING),
    ("reap.after_update", DYING, NOTHING),
    ("reap.after_commit", DYING, NOTHING),
    ("promote.before", DUE, NOTHING),
    ("promote.after_commit", DUE, NOTHING),
    ("cancel.before", CANCELLING, codes(kill=LOST)),
    ("cancel.after_update", CANCELLING, codes(kill=LOST)),
    ("cancel.after_commit", CANCELLING, NOTHING),
    ("compensate.before", COMPENSATING, codes(kill=LOST, request=FAILED, reply=FAILED)),
    ("compensate.after_call", COMPENSATING, IN_TRANSACTION),
    ("compensate.after_update", COMPENSATING, IN_TRANSACTION),
)

# What has no transaction of its own on PostgreSQL, so that there is no moment between the change and its commit.
ONE_STATEMENT = {("renew.after_update", PROGRESSING), ("fail.after_update", FAILING), ("finish.after_update", PLAIN)}
# Where a transaction is open that holds SQLite's only write lock: the documented limit of ruling 26.
SQLITE_LOCKED = {
    *(("claim.before", scenario) for scenario in (ROW, LIMITED)),
    *((point, ROW) for point in ("handler.before", "handler.after", "finish.before")),
    ("finish.before", PAYING),
    ("cancel.before", CANCELLING),
}


def why_not(point: str, kind: str, scenario: Scenario, vendor: str) -> str:
    """Say why a fault cannot be had at a point; empty if it can."""
    if vendor == "sqlite":
        if kind in CONNECTION:
            return "SQLite has no connection to lose"
        if kind == "freeze" and ((point, scenario) in SQLITE_LOCKED or point.endswith(".after_update")):
            return "a process frozen inside a transaction holds SQLite's only write lock, which is documented"
    elif (point, scenario) in ONE_STATEMENT:
        return "the statement is its own transaction on PostgreSQL"
    if scenario is COMPENSATING and kind == "freeze":
        return "the job of a compensation has the package's own lease, which outlasts what a cell waits for"
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
            point=point, kind=kind, scenario=scenario, code=meant[kind], why_not=why_not(point, kind, scenario, vendor)
        )
        for point, scenario, meant in TABLE
    ]


# How many cells must run at least: a change that makes the matrix smaller has to say so here.
LEAST: dict[str, dict[str, int]] = {
    "postgresql": {"kill": 41, "raise": 41, "term": 39, "freeze": 38, **dict.fromkeys(CONNECTION, 41)},
    "sqlite": {"kill": 44, "raise": 44, "term": 42, "freeze": 26},
}
