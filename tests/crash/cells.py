"""The table of the matrix: what must become of a job when a fault of a kind hits a point.

``same`` what the scenario does without a fault: nothing happened, or it was committed already, or it is retried in place ·
``lost`` the attempt is lost and another one runs · ``failed`` the attempt is recorded as failed and another one runs ·
``released`` it was given back and another one runs · ``late`` as lost, and what the holder does afterwards is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

SAME, LOST, FAILED, RELEASED, LATE = "same", "lost", "failed", "released", "late"
KINDS = ("kill", "raise", "lose_request", "lose_reply", "terminate", "term", "freeze")
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

Codes = dict[str, str]


def codes(
    *, kill: str, fails: str = FAILED, request: str = SAME, reply: str = SAME, term: str = SAME, freeze: str = LATE
) -> Codes:
    """Write one line of the table; a session that the server ends is seen as a request that does not arrive."""
    return {
        **{"kill": kill, "raise": fails, "lose_request": request, "lose_reply": reply, "terminate": request},
        **{"term": term, "freeze": freeze},
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
    ("renew.after", PROGRESSING, codes(kill=LOST, request=FAILED, reply=FAILED)),
    ("finish.before", ROW, IN_TRANSACTION),
    ("finish.before", PLAIN, codes(kill=LOST)),
    ("finish.before", PAYING, IN_TRANSACTION),
    ("finish.after_update", ROW, codes(kill=LOST, request=FAILED)),
    ("finish.after_update", PAYING, codes(kill=LOST, request=FAILED)),
    ("finish.after_commit", ROW, NOTHING),
    ("finish.after_commit", PLAIN, NOTHING),
    ("fail.before", FAILING, codes(kill=LOST)),
    ("fail.after_commit", FAILING, NOTHING),
    ("reap.after_select", DYING, NOTHING),
    ("reap.after_update", DYING, NOTHING),
    ("reap.after_commit", DYING, NOTHING),
    ("promote.before", DUE, NOTHING),
    ("promote.after_commit", DUE, NOTHING),
    ("cancel.before", CANCELLING, codes(kill=LOST)),
    ("cancel.after_update", CANCELLING, codes(kill=LOST)),
    ("cancel.after_commit", CANCELLING, NOTHING),
)

# Why a fault cannot be had at a point. On which database: "" means on both.
NOT_APPLICABLE: dict[tuple[str, str, str], str] = {}


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


def cells(kind: str, vendor: str) -> Iterator[Cell]:
    """Return the cells of a kind; those that do not apply say why."""
    for point, scenario, meant in TABLE:
        if os.environ.get("CRASH_ONLY", "") not in f"{point} x {kind} ({scenario.name})":
            continue  # somebody looks into one line
        why = NOT_APPLICABLE.get((point, kind, "")) or NOT_APPLICABLE.get((point, kind, vendor), "")
        yield Cell(point=point, kind=kind, scenario=scenario, code=meant[kind], why_not=why)
