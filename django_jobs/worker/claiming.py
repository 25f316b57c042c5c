"""What a child may claim now: known types, room, and jobs that must run alone."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence

from django_jobs import clock
from django_jobs.define import registry
from django_jobs.define.definition import JobDefinition
from django_jobs.domain.states import Alone
from django_jobs.models import Job
from django_jobs.store import Claimed, ClaimRequest, KnownType, claim, has_suspect, known_queues, next_due, promote
from django_jobs.store.completion import given
from django_jobs.store.endings import release
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.config import WorkerConfig

logger = logging.getLogger("django_jobs.worker")

LOOK_FOR_SUSPECTS_EVERY = 1.0  # seconds
LOOK_FOR_DOUBTFUL_EVERY = 0.5  # seconds
DOUBT = 60.0  # seconds, from the next answer of the server on, for which it may still commit a claim without an answer


class Claimer:
    """Claims for one child. Keeps what it asked for, so that a lost reply cannot lose a job."""

    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        self._definitions: dict[tuple[str, int], JobDefinition] = {}
        self._types: list[KnownType] = []
        self._doubtful: dict[uuid.UUID, float] = {}  # attempt ids whose claim was not answered, and until when to look
        self._looked_at_doubtful = float("-inf")
        self._queues: list[str] = list(config.queues)
        self._looked_at_queues = float("-inf")
        self._looked_for_suspects = float("-inf")
        self._promoted = float("-inf")
        self._suspect_waits = False
        self.refresh_types()

    def refresh_types(self) -> None:
        """Read the registry: every stored name, also older ones, at its payload version."""
        for name, definition in registry.definitions():
            self._definitions[(name, definition.options.version)] = definition
        self._types = [
            KnownType(
                job_type=name,
                payload_version=version,
                lease=definition.terms.lease,
                code_version=definition.code_version()[:64],
            )
            for (name, version), definition in self._definitions.items()
        ]

    def queues(self) -> Sequence[str]:
        """Return the queues to serve; without a choice, all that are declared or in which something waits."""
        if self.config.queues:
            return self._queues
        now = clock.boot_seconds()
        if now - self._looked_at_queues >= self.config.poll:
            declared = {definition.options.queue_name for definition in self._definitions.values()}
            self._queues = sorted(declared | set(known_queues(using=self.config.database)))
            self._looked_at_queues = now
        return self._queues

    def take(self, free: int, running: int) -> list[RunningAttempt]:
        """Claim what may start beside what runs; at most ``free`` attempts.

        A job that has to run alone waits for a child without company. A worker of one child is alone then; one of
        several runs it alone in a child, which never convicts after a silent loss.
        """
        self.settle_doubtful()
        self._promote()
        if self._suspects_due():
            if running == 0:
                alone = Alone.WORKER if self.config.processes == 1 else Alone.CHILD
                found = self._claim(1, suspects=True, alone=alone)
                if found:
                    return found
                self._suspect_waits = False
            elif self.config.slot == 0:
                return []  # one child of the worker makes room for the suspect; the others go on
        return self._claim(free)

    def _suspects_due(self) -> bool:
        now = clock.boot_seconds()
        if now - self._looked_for_suspects >= LOOK_FOR_SUSPECTS_EVERY or self._suspect_waits:
            self._suspect_waits = has_suspect(self.queues(), self._types, using=self.config.database)
            self._looked_for_suspects = now
        return self._suspect_waits

    def _promote(self) -> None:
        now = clock.boot_seconds()
        if now - self._promoted >= min(self.config.poll, 1.0):
            promote(self.queues(), using=self.config.database)
            self._promoted = now

    def _claim(self, room: int, *, suspects: bool = False, alone: Alone = Alone.NO) -> list[RunningAttempt]:
        request = ClaimRequest(
            queues=self.queues(),
            types=self._types,
            attempt_ids=[uuid.uuid4() for _ in range(room)],
            worker_id=self.config.uuid,
            worker_child=self.config.child,
            worker_name=self.config.name[:128],
            suspects=suspects,
            alone=alone,
        )
        asked_at = clock.boot_seconds()
        self._doubtful.update(dict.fromkeys(request.attempt_ids, float("inf")))
        claimed = claim(request, using=self.config.database)
        for attempt_id in request.attempt_ids:
            del self._doubtful[attempt_id]
        return [self._running(job, asked_at) for job in claimed]

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
        if self._doubtful or next_due(self.queues(), using=self.config.database) is not None:
            return False
        known = {item.job_type for item in self._types}
        waiting = Job.objects.using(self.config.database).filter(
            state="queued", queue_name__in=list(self.queues()), job_type__in=known
        )
        versions = set(waiting.values_list("job_type", "payload_version").distinct())
        return not versions & set(self._definitions)
