"""The table of the matrix: what must become of a job when a fault of a kind hits a point.

``same`` what the scenario does without a fault: nothing happened, or it was committed already, or it is retried in place ·
``lost`` the attempt is lost and another one runs · ``failed`` the attempt is recorded as failed and another one runs ·
``released`` it was given back and another one runs · ``late`` as lost, and what the holder does afterwards is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

SAME, LOST, FAILED, RELEASED, LATE = "same", "lost", "failed", "released", "late"
# What becomes of a job that an operator wants cancelled at the moment of the point.
CANCELLED, REVIEW, TOO_LATE, BUSY, OVER, KEPT = "cancelled", "for review", "too late", "busy", "over", "kept"
NOT_ASKED = "-"


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
    follows: bool = False  # whether its end makes another job follow, once: a callback, or the next link of a chain
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
BATCHED = Scenario(name="batched", follows=True)
CHAINED = Scenario(name="chained", follows=True)
CHAINED_PLAIN = Scenario(name="chained_plain", follows=True, row=0)
OUTSTAYING = Scenario(name="outstays", own=("released", "succeeded"), then=("succeeded",), stops=True)

Codes = dict[str, str]


def codes(
    *,
    kill: str,
    fails: str = FAILED,
    request: str = SAME,
    reply: str = SAME,
    freeze: str = LATE,
    cancel: str = TOO_LATE,
    **others: str,
) -> Codes:
    """Write one line of the table; what is not said follows from another kind.

    A session that the server ends, and one that cannot be opened again at once, is seen as a request that does not
    arrive, and so is a statement that the server refuses.
    """
    return {
        "kill": kill,
        "raise": fails,
        "term": SAME,
        "freeze": freeze,
        "delay": FAILED if kill == LOST else SAME,
        **dict.fromkeys(("lose_request", "terminate", "crowd"), request),
        **dict.fromkeys(("deadlock", "serialization", "lock_timeout", "disk_full"), request),
        "lose_reply": reply,
        "cancel": cancel,
        **others,
    }


NOTHING = codes(kill=SAME, fails=SAME, freeze=SAME, cancel=OVER)
IN_TRANSACTION = codes(kill=LOST, request=FAILED, reply=FAILED)

TABLE: tuple[tuple[str, Scenario, Codes], ...] = (
    ("claim.before", LIMITED, {**NOTHING, "cancel": CANCELLED}),
    ("claim.after_update", LIMITED, {**NOTHING, "lose_reply": RELEASED, "cancel": BUSY}),
    ("claim.after_commit", LIMITED, codes(kill=LOST, fails=RELEASED, delay=LATE)),
    ("claim.before", ROW, {**NOTHING, "lose_reply": RELEASED, "cancel": CANCELLED}),
    ("claim.after_commit", ROW, codes(kill=LOST, fails=RELEASED, delay=LATE)),
    ("handler.before", ROW, IN_TRANSACTION),
    ("handler.before", PLAIN, codes(kill=LOST)),
    ("handler.after", ROW, IN_TRANSACTION),
    ("handler.after", PLAIN, codes(kill=LOST)),
    ("handler.progress", PROGRESSING, codes(kill=LOST, cancel=CANCELLED)),
    ("effect.before_intent", PAYING, codes(kill=LOST, cancel=CANCELLED)),
    # The thread stands until the deadline of its call is over: then it is not made.
    ("effect.after_intent", PAYING, codes(kill=LOST, cancel=CANCELLED)),
    ("effect.after_call", PAYING, codes(kill=LOST, cancel=REVIEW)),
    ("effect.after_confirm", PAYING, codes(kill=LOST, request=FAILED, reply=FAILED, cancel=REVIEW)),
    ("reconcile.before", RECONCILED, codes(kill=LOST, cancel=REVIEW)),
    ("reconcile.after_answer", RECONCILED, codes(kill=LOST, cancel=REVIEW)),
    ("reconcile.after_commit", RECONCILED, codes(kill=LOST, cancel=REVIEW)),
    ("renew.before", PROGRESSING, codes(kill=LOST, cancel=CANCELLED)),
    ("renew.after_update", PROGRESSING, codes(kill=LOST, cancel=CANCELLED)),
    ("renew.after", PROGRESSING, codes(kill=LOST, request=FAILED, reply=FAILED, cancel=CANCELLED)),
    ("finish.before", ROW, IN_TRANSACTION),
    ("finish.before", PLAIN, codes(kill=LOST)),
    ("finish.before", PAYING, {**IN_TRANSACTION, "cancel": BUSY}),
    ("finish.after_update", ROW, codes(kill=LOST, request=FAILED, cancel=BUSY)),
    ("finish.after_update", PLAIN, codes(kill=LOST)),
    ("finish.after_update", PAYING, codes(kill=LOST, request=FAILED, cancel=BUSY)),
    ("finish.after_commit", ROW, NOTHING),
    ("finish.after_commit", PLAIN, NOTHING),
    ("fail.before", FAILING, codes(kill=LOST, cancel=CANCELLED)),
    ("fail.after_update", FAILING, codes(kill=LOST, cancel=BUSY)),
    ("fail.after_commit", FAILING, {**NOTHING, "cancel": CANCELLED}),
    ("release.before", OUTSTAYING, codes(kill=LOST, fails=LOST, freeze=LOST, delay=LOST, cancel=CANCELLED)),
    ("release.after_commit", OUTSTAYING, {**NOTHING, "cancel": CANCELLED}),
    ("reap.after_select", DYING, {**NOTHING, "cancel": CANCELLED}),
    ("reap.after_update", DYING, {**NOTHING, "cancel": BUSY}),
    ("reap.after_commit", DYING, {**NOTHING, "cancel": CANCELLED}),
    ("promote.before", DUE, {**NOTHING, "cancel": CANCELLED}),
    ("promote.after_commit", DUE, {**NOTHING, "cancel": CANCELLED}),
    ("cancel.before", CANCELLING, codes(kill=LOST, cancel=CANCELLED)),
    ("cancel.after_update", CANCELLING, codes(kill=LOST, cancel=CANCELLED)),
    ("cancel.after_commit", CANCELLING, {**NOTHING, "cancel": CANCELLED}),
    ("compensate.before", COMPENSATING, codes(kill=LOST, request=FAILED, reply=FAILED, cancel=CANCELLED)),
    ("compensate.after_call", COMPENSATING, {**IN_TRANSACTION, "cancel": KEPT}),
    ("compensate.after_update", COMPENSATING, {**IN_TRANSACTION, "cancel": BUSY}),
    ("chain.after_next", CHAINED, codes(kill=LOST, request=FAILED, cancel=BUSY)),
    ("chain.after_next", CHAINED_PLAIN, codes(kill=LOST, cancel=BUSY)),
    ("batch.before_close", BATCHED, NOTHING),
    ("batch.after_update", BATCHED, NOTHING),
    ("batch.after_commit", BATCHED, NOTHING),
)
