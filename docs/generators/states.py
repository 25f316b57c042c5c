"""The tables of states, moves and dead reasons, from ``django_jobs.domain.states``."""

from __future__ import annotations

from collections.abc import Iterable

from django_jobs.domain.states import NOT_BUILT, TRANSITIONS, DeadReason, JobState, Transition
from docs.generators import markdown

STATE_MEANING = {
    JobState.SCHEDULED: "Due later, or set aside because nobody may or can run it now.",
    JobState.QUEUED: "Due now; any worker that knows the type may claim it.",
    JobState.RUNNING: "Leased to one attempt.",
    JobState.FAILED: "The last attempt failed; the next one is scheduled.",
    JobState.SUCCEEDED: "Done. Nothing leaves this state.",
    JobState.DEAD_LETTERED: "Stopped; a human decides. The reason is stored.",
    JobState.CANCELLED: "Ended by decision, and nothing that it did to the world may stand. Nothing leaves this state.",
}
MOVER = {
    JobState.SCHEDULED: "a worker, when it is due",
    JobState.QUEUED: "a worker that claims it",
    JobState.RUNNING: "its holder, or a worker that proves the holder gone",
    JobState.FAILED: "a worker, when it is due",
    JobState.SUCCEEDED: "nobody",
    JobState.DEAD_LETTERED: "a human",
    JobState.CANCELLED: "nobody",
}
REASON_MEANING = {
    DeadReason.PERMANENT: "An error that trying again cannot mend.",
    DeadReason.PAYLOAD: "The stored arguments do not fit the handler, or are not those that were enqueued.",
    DeadReason.ATTEMPTS: "Reserved for job types with a fixed number of attempts.",
    DeadReason.UNKNOWN_BUDGET: "As many errors of class unknown as `unknown_attempts` allows.",
    DeadReason.AGE: "A transient error, and the next try would come after `transient_max_age`.",
    DeadReason.EXPIRED: "`useful_for` is over, or the next try would come after it.",
    DeadReason.UNCHANGED: "The same unknown error `unchanged` times in a row.",
    DeadReason.POISON: "The job was lost too often, the last time without company: it ends its process.",
    DeadReason.NO_PROGRESS: "Too many snoozes, releases and leases that ran out.",
    DeadReason.UNKNOWN_TYPE: "No live worker announced the job type for `UNKNOWN_TYPE_GRACE`.",
    DeadReason.VERSION: "No live worker announced the payload version for `UNKNOWN_TYPE_GRACE`; the type was known.",
    DeadReason.EFFECT_REVIEW: "Only a human can find out whether an effect was applied, or which of two jobs meant it.",
    DeadReason.EFFECT_OPEN: "An effect stayed unclear for `reconcile_max_age`, or was open when the handler ended.",
    DeadReason.CANCELLED: "Cancelled after an effect was sent that may have been applied.",
}


def state_table() -> str:
    """Return one row per job state."""
    rows = ((f"`{state}`", STATE_MEANING[state], MOVER[state]) for state in JobState)
    return markdown.table(("State", "Meaning", "Who moves it on"), rows)


def transition_table() -> str:
    """Return one row per transition that this version can make."""
    rows = (
        (
            f"`{move.name}`",
            _states(move.sources) or "(new)",
            _states(move.targets),
            move.who,
            "yes" if move.fenced else "",
        )
        for move in built()
    )
    return markdown.table(("Move", "From", "To", "Who", "Proves the attempt"), rows)


def dead_reason_table() -> str:
    """Return one row per reason of a dead letter."""
    return markdown.table(("Reason", "Meaning"), ((f"`{reason}`", REASON_MEANING[reason]) for reason in DeadReason))


def built() -> list[Transition]:
    """Return the transitions of this version, in the order of the table."""
    return [move for move in TRANSITIONS if move.name not in NOT_BUILT]


def _states(states: Iterable[JobState]) -> str:
    order = list(JobState)
    return ", ".join(f"`{state}`" for state in sorted(states, key=order.index))
