"""States and transitions: the one table from which SQL file names, store functions, tests and docs derive."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class JobState(StrEnum):
    """Where a logical job stands, and who moves it on."""

    SCHEDULED = "scheduled"  # due later; promotion moves it on
    QUEUED = "queued"  # due now; a claim moves it on
    RUNNING = "running"  # leased; the holder moves it on, or a reaper that proves the holder gone
    FAILED = "failed"  # the last attempt failed, the next one is scheduled; promotion moves it on
    SUCCEEDED = "succeeded"  # terminal: nothing leaves it
    DEAD_LETTERED = "dead_lettered"  # a human decides
    CANCELLED = "cancelled"  # terminal


class AttemptOutcome(StrEnum):
    """How one delivery of a job to a worker ended; an open attempt has none."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"  # never observed; it may have succeeded
    RELEASED = "released"  # given back by its worker, not charged
    SNOOZED = "snoozed"
    CANCELLED = "cancelled"


class LossCause(StrEnum):
    """What proved that an attempt was lost."""

    EXIT = "exit"  # the supervisor reaped the process
    SILENT = "silent"  # the worker's heartbeat is missing
    EXPIRED = "expired"  # the lease is over although the worker still beats; charged as a free move
    ENDED = "ended"  # the worker ended the process on purpose and could not give the job back; charged as a free move


class Alone(StrEnum):
    """How much company an attempt had, decided by its claim and kept throughout."""

    NO = ""
    CHILD = "child"
    WORKER = "worker"


class ErrorClass(StrEnum):
    """What an error says about trying again."""

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    UNKNOWN = "unknown"


class DeadReason(StrEnum):
    """Why a job waits for a human."""

    PERMANENT = "permanent"
    PAYLOAD = "payload"
    ATTEMPTS = "attempts"
    UNKNOWN_BUDGET = "unknown_budget"
    AGE = "age"
    EXPIRED = "expired"
    UNCHANGED = "unchanged"
    POISON = "poison"
    NO_PROGRESS = "no_progress"
    UNKNOWN_TYPE = "unknown_type"
    VERSION = "version"
    EFFECT_REVIEW = "effect_review"
    EFFECT_OPEN = "effect_open"
    CANCELLED = "cancelled"


class PauseKind(StrEnum):
    """What an operator can hold back."""

    QUEUE = "queue"
    TYPE = "type"
    SCHEDULE = "schedule"
    RESOURCE = "resource"


class TickOutcome(StrEnum):
    """What came of one tick of a schedule."""

    ENQUEUED = "enqueued"
    DUPLICATE = "duplicate"  # a live key answered with the job of another enqueue
    REFUSED = "refused"  # its arguments could not be made or stored


class OnDead(StrEnum):
    """What a dead letter means for the batch that its job belongs to."""

    BLOCK = "block"  # the batch stays open until somebody replays or settles it
    CONTINUE = "continue"  # it has ended, like any other member


class Pruning(StrEnum):
    """What a batch of pruning took."""

    CONTENT = "content"  # of finished jobs: arguments, results, requests, answers, messages, tracebacks, digests
    JOBS = "jobs"  # finished jobs with all of their rows
    KEYS = "keys"  # expired keys of jobs whose content or whose rows are gone
    EVENTS = "events"  # events whose deliveries are all settled, with those deliveries and their attempts
    MESSAGES = "messages"  # that messages from outside were taken
    QUARANTINE = "quarantine"  # messages that were put aside
    REPLAYS = "replays"  # requests to replay many that have ended, with what became of each job


class Resolution(StrEnum):
    """How a human (or a declared policy) settled a dead letter."""

    DISCARDED = "discarded"
    COMPENSATED = "compensated"


class EffectState(StrEnum):
    """What is known about one side effect: the join of its sends (see :func:`django_jobs.domain.effects.join`)."""

    PLANNED = "planned"
    IN_FLIGHT = "in_flight"
    AMBIGUOUS = "ambiguous"
    REJECTED = "rejected"
    SUCCEEDED = "succeeded"
    ABANDONED = "abandoned"  # on_ambiguous="accept": counted, with its reason


class SendOutcome(StrEnum):
    """What is known about one physical request; an open send has none."""

    CONFIRMED = "confirmed"
    REJECTED = "rejected"
    NOT_APPLIED = "not_applied"  # inferred by a final reconciliation or a human
    UNKNOWN = "unknown"


class CompensationOutcome(StrEnum):
    """How far the taking back of an effect is."""

    OPEN = "open"
    SUCCEEDED = "succeeded"
    VOID = "void"  # its job was discarded or cancelled: another one may be asked for


class ReplayState(StrEnum):
    """How far a replay of many is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"  # its canary failed
    CANCELLED = "cancelled"


class ReplayOutcome(StrEnum):
    """What became of one job of a replay of many."""

    QUEUED = "queued"
    UNCHANGED = "unchanged"  # no dead letter any more
    REFUSED = "refused"  # its plan is of a class that nobody acknowledged, or it cannot be replayed


class DeliveryState(StrEnum):
    """Where one event stands on its way to one destination."""

    WAITING = "waiting"  # behind an earlier event of its ordering key
    PENDING = "pending"  # due at ``available_at``
    CLAIMED = "claimed"  # leased by a dispatcher
    PUBLISHED = "published"  # the destination confirmed
    DEAD_LETTERED = "dead_lettered"  # a human decides
    DISCARDED = "discarded"  # a human decided: not delivered


class DeliveryOutcome(StrEnum):
    """How one attempt to deliver ended; an open one has none."""

    CONFIRMED = "confirmed"
    RETURNED = "returned"  # the destination has nowhere to put it
    NACKED = "nacked"  # refused
    TIMEOUT = "timeout"  # it may have arrived
    ERROR = "error"  # the destination was not reached, or failed
    LOST = "lost"  # never observed; it may have arrived
    RELEASED = "released"  # given back unsent


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One allowed move of a job.

    ``fenced`` moves prove the attempt id; ``who`` names the mover; ``event`` is the telemetry event told after it.
    """

    name: str
    sources: frozenset[JobState]
    targets: frozenset[JobState]
    fenced: bool
    who: str
    event: str


S = JobState
_WAITING = frozenset({S.SCHEDULED, S.QUEUED, S.FAILED})
_LIMBO = frozenset({S.SCHEDULED, S.FAILED})


def _move(
    name: str, sources: set[JobState] | frozenset[JobState], targets: set[JobState], *, who: str, fenced: bool = False
) -> Transition:
    return Transition(
        name=name,
        sources=frozenset(sources),
        targets=frozenset(targets),
        fenced=fenced,
        who=who,
        event=f"job.{name}",
    )


TRANSITIONS: tuple[Transition, ...] = (
    _move("enqueue", set(), {S.QUEUED, S.SCHEDULED}, who="producer"),
    _move("promote", _LIMBO, {S.QUEUED}, who="worker"),
    _move("defer", {S.QUEUED}, {S.SCHEDULED}, who="worker"),
    _move("claim", {S.QUEUED}, {S.RUNNING}, who="worker"),
    _move("renew", {S.RUNNING}, {S.RUNNING}, who="holder", fenced=True),
    _move("succeed", {S.RUNNING}, {S.SUCCEEDED}, who="holder", fenced=True),
    _move("fail", {S.RUNNING}, {S.FAILED, S.QUEUED}, who="holder", fenced=True),
    _move("dead_letter", {S.RUNNING}, {S.DEAD_LETTERED}, who="holder", fenced=True),
    _move("snooze", {S.RUNNING}, {S.SCHEDULED}, who="holder", fenced=True),
    _move("release", {S.RUNNING}, {S.QUEUED}, who="holder", fenced=True),
    _move("rescue", {S.RUNNING}, {S.QUEUED, S.FAILED, S.DEAD_LETTERED}, who="reaper", fenced=True),
    _move("expire", _WAITING, {S.DEAD_LETTERED}, who="worker"),
    _move("cancel", _WAITING, {S.CANCELLED, S.DEAD_LETTERED}, who="operator"),
    _move("cancel_running", {S.RUNNING}, {S.CANCELLED, S.DEAD_LETTERED}, who="holder", fenced=True),
    _move("run_now", _LIMBO, {S.QUEUED}, who="operator"),
    _move("replay", {S.DEAD_LETTERED}, {S.QUEUED, S.SCHEDULED}, who="operator"),
    _move("discard", {S.DEAD_LETTERED}, {S.DEAD_LETTERED}, who="operator"),
    _move("compensated", {S.DEAD_LETTERED}, {S.DEAD_LETTERED}, who="compensation job"),
)

BY_NAME: dict[str, Transition] = {transition.name: transition for transition in TRANSITIONS}

# Frozen here, written with the rooms that need them: no store function and no SQL file yet.
NOT_BUILT: frozenset[str] = frozenset()

FINISHED_STATES: frozenset[JobState] = frozenset({S.SUCCEEDED, S.CANCELLED})


def is_unfinished(state: str, resolution: str | None) -> bool:
    """Say whether a job still needs somebody: not succeeded, not cancelled, not a dead letter with a resolution."""
    return state not in FINISHED_STATES and not (state == JobState.DEAD_LETTERED and resolution is not None)
