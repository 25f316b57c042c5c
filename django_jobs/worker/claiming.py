"""What a child may claim now: known types, room, and jobs that must run alone."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence

from django_jobs import clock, telemetry
from django_jobs.define import registry
from django_jobs.define.definition import JobDefinition
from django_jobs.domain.lanes import BEHIND, kind_text
from django_jobs.domain.states import Alone
from django_jobs.models import Job
from django_jobs.store import Claimed, ClaimRequest, KnownType, claim, known_queues, next_due, oldest_suspect
from django_jobs.store.completion import given
from django_jobs.store.endings import release
from django_jobs.store.notify import look
from django_jobs.store.resources import Lane
from django_jobs.store.turns import arrived, settle_turns, stale
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.clearing import Clearing
from django_jobs.worker.company import Company, nobody_delivers
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.failures import failures
from django_jobs.worker.lanes import Lanes
from django_jobs.worker.room import Seat, Stand

logger = logging.getLogger("django_jobs.worker")

LOOK_FOR_SUSPECTS_EVERY = 1.0  # seconds
LOOK_FOR_QUEUES_EVERY = 5.0  # seconds
LOOK_FOR_QUEUES_IDLE = 20.0  # seconds; an idle look sees ready jobs of queues that it does not know
LOOK_FOR_DOUBTFUL_EVERY = 0.5  # seconds
OLDEST_EVERY = 8  # claims; one of so many takes what has waited longest, so that low priorities go on
LOOK_FOR_TURNS_EVERY = 1.0  # seconds
DOUBT = 60.0  # seconds, from the next answer of the server on, for which it may still commit a claim without an answer


class Claimer:
    """Claims for one child. Keeps what it asked for, so that a lost reply cannot lose a job."""

    def __init__(self, config: WorkerConfig, seat: Seat | None = None, company: Company | None = None) -> None:
        self.config = config
        self.seat = seat or Seat(lambda *_: True)
        self._company = company or nobody_delivers()
        self._definitions: dict[tuple[str, int], JobDefinition] = {}
        self._types: list[KnownType] = []
        self._doubtful: dict[uuid.UUID, float] = {}  # attempt ids whose claim was not answered, and until when to look
        self._looked_at_doubtful = float("-inf")
        self._queues: list[str] = list(config.queues)
        self._looked_at_queues = float("-inf")
        self._looked_for_suspects = float("-inf")
        self._claims = 0
        self._clearing = Clearing(self._kinds, using=config.database)
        self._suspect_waits = Alone.NO  # the room that the oldest due suspect needs
        self.lanes = Lanes(using=config.database, serves_all=config.served.is_all)
        self._looked_for_turns = float("-inf")
        self._unread: list[Lane] = []  # lanes with room in which the last claim found less than it could take
        self.refresh_types()

    def refresh_types(self) -> None:
        """Read the registry: every stored name, also older ones, at each payload version that the code can run."""
        for name, definition in registry.definitions():
            self._definitions |= {(name, version): definition for version in definition.versions}
        self._types = [
            KnownType(
                job_type=name,
                payload_version=version,
                lease=definition.terms.lease,
                code_version=definition.code_version()[:64],
            )
            for (name, version), definition in self._definitions.items()
        ]

    def _kinds(self) -> list[str]:
        return [kind_text(name, version) for name, version in self._definitions]

    def _open_types(self) -> list[KnownType]:
        if not self._clearing.paused.types:
            return self._types
        return [item for item in self._types if item.job_type not in self._clearing.paused.types]

    def queues(self) -> Sequence[str]:
        """Return the queues to serve, less paused ones; without a choice, all declared or in which something waits."""
        self._clearing.read_pauses()
        return self._clearing.paused.open_queues(self.known_queues(LOOK_FOR_QUEUES_EVERY))

    def open_lanes(self) -> list[Lane]:
        """Return the lanes of jobs whose resource may have room now."""
        return self.lanes.open(self.queues(), paused=self._clearing.paused.resources)

    def known_queues(self, no_older: float = LOOK_FOR_QUEUES_IDLE) -> Sequence[str]:
        """Return the queues to serve, paused ones too, as they were at most so many seconds ago."""
        now = clock.boot_seconds()
        if not self.config.queues and now - self._looked_at_queues >= no_older:
            declared = {definition.options.queue_name for definition in self._definitions.values()}
            self._queues = sorted(self.config.served.among(declared | set(known_queues(using=self.config.database))))
            self._looked_at_queues = now
        return self._queues

    def seconds_to_next_due(self) -> float:
        """Return how long it is until a waiting job can start for its time alone, as far as this child knows."""
        return min(max(0.0, self._clearing.next_due - clock.boot_seconds()), self.lanes.seconds_to_next())

    def seconds_to_next(self) -> float | None:
        """Look with one read whether a claim may find something; returns in how many seconds, None when nothing waits.

        Ready jobs of a queue that nobody declared are seen too, if this worker serves every queue. Jobs that are set
        aside may be taken up at any time, so they count as something.
        """
        self.settle_doubtful()
        served = self.config.served
        everywhere = served.is_all
        no_older = self.config.poll if served.excluded else LOOK_FOR_QUEUES_IDLE  # no look sees what is new to it
        found = look(self.known_queues(no_older), everywhere=everywhere, using=self.config.database)
        now = clock.boot_seconds()
        if found.aside or (found.seconds is not None and found.seconds <= 0):
            self._looked_for_suspects = float("-inf")  # what is due may be one, and the next look may be a poll away
            self.lanes.forget()
            self._looked_for_turns = float("-inf")
        if found.aside:
            return 0.0
        if found.seconds is None or found.seconds > 0:  # nothing is due: neither to promote nor as a suspect
            self._clearing.note_quiet(found.seconds)
            self._looked_for_suspects = now
            self._suspect_waits = Alone.NO
        elif everywhere and now - self._looked_at_queues >= self.config.poll:
            self._looked_at_queues = float("-inf")  # it may lie in a queue that was not known yet
        return found.seconds

    def take(self, free: int, running: int) -> list[RunningAttempt]:
        """Claim what may start beside what runs; at most ``free`` attempts.

        A job that has to run alone waits for a child without company; one that needs the whole worker waits until the
        supervisor has made the other children quiet. The oldest due one comes first.
        """
        stand = self.seat.stand(busy=running > 0 or self.seat.is_free or not self._company.ask_quiet())
        self.settle_doubtful()
        self._clearing.promote(self.queues())
        self._settle_turns()
        needed = self._suspect_due()
        if stand is Stand.HELD:
            if needed is not Alone.WORKER:
                self.seat.give_back()  # it ran elsewhere meanwhile
            return []
        if stand is Stand.GRANTED:
            return self._take_with_whole_worker()
        suspect = self._take_suspect(needed, running) if needed else None
        if suspect is not None:
            return suspect
        found = self._claim(free)
        return found if len(found) >= free else found + self._claim_behind(free - len(found), beside=found)

    def _settle_turns(self) -> None:
        """See at most once a second, and when an idle look saw something, whose turn it is where jobs have arrived."""
        now = clock.boot_seconds()
        if now - self._looked_for_turns < LOOK_FOR_TURNS_EVERY:
            return
        self._looked_for_turns = now
        using = self.config.database
        try:
            if settle_turns(arrived(self.known_queues(LOOK_FOR_QUEUES_EVERY), using=using), using=using):
                self.lanes.forget()
        except Exception as error:  # noqa: BLE001  jobs without a key have nothing to do with it
            failures.note("turns", error, using=using)

    def _claim_behind(self, room: int, *, beside: list[RunningAttempt]) -> list[RunningAttempt]:
        """Claim what stood behind rows in the way; an error here must not lose what was claimed ``beside`` it."""
        try:
            if not self._clearing.clear(self.queues(), self._unread):
                return []
            self.lanes.reopen(self._unread)
            return self._claim(room)
        except Exception as error:  # what was claimed has to start: nobody else would run it before its lease is over
            if not beside:
                raise
            failures.note("clear", error, using=self.config.database)
            return []

    def _take_suspect(self, needed: Alone, running: int) -> list[RunningAttempt] | None:
        """Claim a suspect, or nothing to make room for it; None when this child may go on with other jobs."""
        if needed is Alone.WORKER and self.config.processes > 1:
            self.seat.ask()  # until the supervisor holds this child; that may be refused for long, so others go on
            if running or not self._company.take_quiet():
                return None
            return self._claim_suspect(Alone.CHILD) or None
        # One child of the worker, the others go on; nor does it wait for a delivery that may never end.
        makes_room = self.config.slot == 0 and not self._company.is_stuck
        if running or not (self._company.ask_quiet() if makes_room else self._company.take_quiet()):
            return [] if makes_room else None
        found = self._claim_suspect(Alone.WORKER if self.config.processes == 1 else Alone.CHILD)
        if not found:
            self._suspect_waits = Alone.NO
        return found or None

    def _claim_suspect(self, alone: Alone) -> list[RunningAttempt]:
        found = self._claim(1, suspects=True, alone=alone)
        if not found:  # else deliveries would wait for a job that another child runs
            self._company.forget_quiet()
        return found

    def _take_with_whole_worker(self) -> list[RunningAttempt]:
        found = self._claim(1, suspects=True, alone=Alone.WORKER)
        if found:
            self.seat.use()
        else:
            self._suspect_waits = Alone.NO
            self.seat.give_back()
        return found

    def _suspect_due(self) -> Alone:
        now = clock.boot_seconds()
        if now - self._looked_for_suspects >= LOOK_FOR_SUSPECTS_EVERY or self._suspect_waits:
            self._suspect_waits = oldest_suspect(
                self.queues(), self._open_types(), using=self.config.database, lanes=self.open_lanes()
            )
            self._looked_for_suspects = now
        return self._suspect_waits

    def _claim(self, room: int, *, suspects: bool = False, alone: Alone = Alone.NO) -> list[RunningAttempt]:
        self._claims += not suspects
        lanes = self.open_lanes()
        request = ClaimRequest(
            queues=self.queues(),
            types=self._open_types(),
            attempt_ids=[uuid.uuid4() for _ in range(room)],
            worker_id=self.config.uuid,
            worker_child=self.config.child,
            worker_name=self.config.name[:128],
            suspects=suspects,
            alone=alone,
            oldest=not suspects and self._claims % OLDEST_EVERY == 0,
            beyond=() if suspects else tuple(self._clearing.beyond.values()),
            lanes=lanes,
        )
        asked_at = clock.boot_seconds()
        self._doubtful.update(dict.fromkeys(request.attempt_ids, float("inf")))
        claimed = claim(request, using=self.config.database)
        telemetry.emit("claim.made", count=len(claimed), seconds=clock.boot_seconds() - asked_at)
        for attempt_id in request.attempt_ids:
            del self._doubtful[attempt_id]
        found = [self._running(job, asked_at) for job in claimed]
        self._unread = []
        if lanes and len(found) < room and not suspects:
            self._note_lanes(lanes, found)
        return found

    def _note_lanes(self, lanes: Sequence[Lane], found: list[RunningAttempt]) -> None:
        try:
            self._unread = self.lanes.note_claim(lanes)
        except Exception as error:  # what was claimed has to start: nobody else would run it before its lease is over
            if not found:
                raise
            failures.note("resources", error, using=self.config.database)

    def _running(self, job: Claimed, asked_at: float) -> RunningAttempt:
        definition = self._definitions[(job.job_type, job.payload_version)]
        return RunningAttempt(job, definition, asked_at=asked_at)

    def settle_doubtful(self) -> None:
        """Give back what a claim may have given although its reply was lost.

        The statement may still be committing while this process looks, so it looks again for a while.
        """
        now = clock.boot_seconds()
        if not self._doubtful or now - self._looked_at_doubtful < LOOK_FOR_DOUBTFUL_EVERY:
            return
        for held in given(list(self._doubtful), using=self.config.database):
            if release(held, message="The reply to the claim was lost, so the job was given back."):
                logger.warning("The reply to the claim of job %s was lost; it was given back", held.job_id)
                del self._doubtful[held.attempt_id]
        self._looked_at_doubtful = now
        # A server that stood still commits when it wakes, so the doubt ends some time after its first answer.
        self._doubtful = {
            attempt_id: min(until, now + DOUBT) for attempt_id, until in self._doubtful.items() if until > now
        }

    def is_nothing_left(self) -> bool:
        """Say whether no job of a known type waits in the queues, due now or later; what others run does not count."""
        settle_turns(stale(using=self.config.database), using=self.config.database)
        if self._doubtful or next_due(self.queues(), using=self.config.database) is not None:
            return False
        known = {item.job_type for item in self._open_types()}
        waiting = Job.objects.using(self.config.database).filter(
            state="queued", queue_name__in=list(self.queues()), job_type__in=known
        )
        waiting = waiting.exclude(
            lane__in=[*self._clearing.paused.resources, BEHIND]
        )  # what stands behind waits for it
        versions = set(waiting.values_list("job_type", "payload_version").distinct())
        return not versions & set(self._definitions)
