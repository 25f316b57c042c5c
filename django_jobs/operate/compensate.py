"""Taking an applied effect back: a new job with its own effect, decided by a person and audited.

Nothing that was recorded about the original job and its effect is rewritten. The decision, the row that says that the
effect is being taken back, and the job that does it commit together.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django_jobs.define import registry
from django_jobs.domain.compensation import COMPENSATION_TYPE, Agreed, compensation_key
from django_jobs.domain.states import CompensationOutcome, EffectState, JobState
from django_jobs.effects.compensation import TakingBack, taking_back_of
from django_jobs.enqueue.continuing import enqueue_for
from django_jobs.exceptions import ActionChangedError, DefinitionError, PayloadError
from django_jobs.models import Compensation, EffectAdoption, Job, SideEffect
from django_jobs.operate.action import Acknowledgement, Decision, Operator, Plan, Target
from django_jobs.operate.lookup import EffectNotFoundError
from django_jobs.store.compensations import compensations_of, open_compensation, taking_back_row
from django_jobs.store.decisions import lock_job
from django_jobs.store.times import read_now

_FINISHED = (JobState.SUCCEEDED, JobState.CANCELLED, JobState.DEAD_LETTERED)
_UNCLEAR = (EffectState.IN_FLIGHT, EffectState.AMBIGUOUS)
_NOTHING = Agreed(operation="", dedupe="", request_digest="")  # is sent


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The rows that the decision looks at."""

    effect: SideEffect
    job: Job
    siblings: tuple[SideEffect, ...]  # all effects of the job in the order in which they were intended
    compensations: tuple[Compensation, ...]  # of all of them
    adopters: tuple[Job, ...]
    taking_back: SideEffect | None  # what earlier jobs did to take the effect back

    @property
    def number(self) -> int:
        """Which try to take the effect back this is, from 1."""
        return 1 + sum(row.effect_id == self.effect.pk for row in self.compensations)

    @property
    def is_taken_back(self) -> bool:
        """Whether a job that was given up did take it back: it only has to be recorded."""
        return self.taking_back is not None and self.taking_back.state == EffectState.SUCCEEDED

    def standing(self, effect: SideEffect) -> Compensation | None:
        """Return the compensation of an effect that is not void."""
        rows = (row for row in self.compensations if row.effect_id == effect.pk)
        return next((row for row in rows if row.outcome != CompensationOutcome.VOID), None)


class Compensate(Decision):
    """Take one applied effect of a finished job back.

    Args:
        effect_id: The effect.
        by_hand: Nothing is sent: it was taken back by hand, or stays on purpose, and the operator's reason says so.
            For what no code can take back; without it, a dead letter with such an effect could never be settled.
        using: The database.
    """

    name = "compensate"
    permission = "compensate_sideeffect"

    def __init__(self, effect_id: uuid.UUID, *, using: str, by_hand: bool = False) -> None:
        super().__init__(using=using)
        self.effect_id = effect_id
        self.by_hand = by_hand

    def lock(self) -> None:
        """Lock the original job, then its effects: whoever replays the job, or adopts the effect, waits.

        Raises:
            ActionChangedError: The effect went over to another job at this moment.
        """
        owner = self._effect().job_id
        lock_job(owner, using=self.using)
        if self._effect().job_id != owner:
            msg = "The effect went over to another job just now; nothing was done. Look again."
            raise ActionChangedError(msg, plan=None)

    def target(self) -> Target:
        """Return the original job and its effect."""
        job = self._look().job
        return Target(
            job_id=job.pk,
            effect_id=self.effect_id,
            from_state=job.state,
            from_revision=job.revision,
            from_generation=job.generation,
        )

    def plan(self) -> Plan:
        """Say what would be taken back, how, and who else relied on it."""
        seen = self._look()
        how, problem = self._how(seen)
        refused = next(_refusals(seen), "") or problem
        return Plan(
            action=self.name,
            title=f"Take back {_named(seen.effect)} of job {seen.job.pk} ({seen.job.job_type})",
            refused=refused,
            facts=self._facts(seen, how),
            lines=tuple(_lines(seen, how, by_hand=self.by_hand)),
            acknowledge=tuple(_boxes(seen, how, by_hand=self.by_hand)),
        )

    def act(self, operator: Operator, action_id: uuid.UUID) -> tuple[str, Mapping[str, Any]]:  # noqa: ARG002
        """Record the compensation and the job that carries it out."""
        seen = self._look()
        options = registry.get(COMPENSATION_TYPE).options.changed(key=compensation_key(self.effect_id, seen.number))
        how, _ = self._how(seen)
        agreed = asdict(how.agreed) if how else {}  # the worker's code may be another one than this
        arguments = {"effect_id": str(self.effect_id), "by_hand": self.by_hand, **agreed}
        result = enqueue_for(seen.job, options, arguments, using=self.using)
        if result is None:
            msg = "Another compensation of this effect was asked for just now; nothing was done. Look again."
            raise ActionChangedError(msg, plan=self.plan())
        row = open_compensation(
            seen.effect, job_id=result.id, action_id=action_id, now=read_now(self.using), using=self.using
        )
        message = f"Job {result.id} takes back {_named(seen.effect)} of job {seen.job.pk}."
        return message, {"job_id": str(result.id), "compensation_id": str(row.pk)}

    def _effect(self) -> SideEffect:
        effect = SideEffect.objects.using(self.using).filter(pk=self.effect_id).first()
        if effect is None:
            msg = f"There is no effect {self.effect_id} in database {self.using!r}."
            raise EffectNotFoundError(msg)
        return effect

    def _look(self) -> _Seen:
        effect = self._effect()
        job = Job.objects.using(self.using).filter(pk=effect.job_id).first()
        if job is None:
            msg = f"The job {effect.job_id} of effect {effect.pk} is gone."
            raise EffectNotFoundError(msg)
        adopters = EffectAdoption.objects.using(self.using).filter(effect_id=effect.pk).exclude(job_id=job.pk)
        return _Seen(
            effect=effect,
            job=job,
            siblings=tuple(SideEffect.objects.using(self.using).filter(job_id=job.pk).order_by("created_at", "id")),
            compensations=tuple(compensations_of(job.pk, using=self.using)),
            taking_back=taking_back_row(effect, using=self.using),
            adopters=tuple(Job.objects.using(self.using).filter(pk__in=adopters.values("job_id")).order_by("pk")),
        )

    def _how(self, seen: _Seen) -> tuple[TakingBack | None, str]:
        """Return what takes the effect back, or why nothing does."""
        if self.by_hand or seen.effect.state != EffectState.SUCCEEDED:
            return None, ""
        try:
            return taking_back_of(seen.effect), ""
        except (DefinitionError, PayloadError) as error:
            if seen.is_taken_back:  # nothing is sent: by hand it would be a second time
                return None, ""
            return None, (
                f"{error} Take it back by hand, then record that: ask again with by_hand (--by-hand), and say in the "
                "reason what was done."
            )

    def _facts(self, seen: _Seen, how: TakingBack | None) -> dict[str, Any]:
        effect, job = seen.effect, seen.job
        agreed = how.agreed if how else _NOTHING
        return {
            "effect": {
                "id": str(effect.pk),
                "name": effect.name,
                "provider": effect.provider,
                "business_key": effect.business_key,
                "state": effect.state,
                "revision": effect.revision,
                "provider_ref": effect.provider_ref,
            },
            "job": {
                "id": str(job.pk),
                "type": job.job_type,
                "state": job.state,
                "resolution": job.resolution,
                "revision": job.revision,
                "generation": job.generation,
            },
            "by_hand": self.by_hand,
            **asdict(agreed),
            "number": seen.number,
            "taken_back": seen.taking_back.state if seen.taking_back else "",
            "siblings": [
                [str(item.pk), item.state, standing.outcome if (standing := seen.standing(item)) else ""]
                for item in seen.siblings
                if item.pk != effect.pk
            ],
            "adopters": [[str(adopter.pk), adopter.state] for adopter in seen.adopters],
        }


def _refusals(seen: _Seen) -> Iterator[str]:
    """Yield why the effect cannot be taken back now."""
    effect, job = seen.effect, seen.job
    if effect.state in _UNCLEAR:
        yield f"The effect is {effect.state}: reconcile or resolve it first; it is not known whether it was applied."
    if effect.state != EffectState.SUCCEEDED:
        yield f"The effect is {effect.state}: there is nothing to take back."
    standing = seen.standing(effect)
    if standing is not None:
        done = "is being" if standing.outcome == CompensationOutcome.OPEN else "has been"
        yield f"The effect {done} taken back by job {standing.job_id}."
    if job.job_type == COMPENSATION_TYPE:
        yield "This effect took something back itself, and a compensation cannot be compensated. Do the act anew."
    if job.state not in _FINISHED:
        yield f"Job {job.pk} is {job.state} and may still act: cancel it, or wait for its end."
    unclear = [item for item in seen.siblings if item.state in _UNCLEAR or item.needs_review]
    if unclear:
        listed = ", ".join(_named(item) for item in unclear)
        yield f"What the job did beside it is not known yet: {listed}. Resolve that first."
    later = [item for item in _later(seen) if _can_be_taken_back(item)]
    if later:
        listed = ", ".join(_named(item) for item in reversed(later))
        yield f"What came later is taken back first: {listed}."


def _later(seen: _Seen) -> Sequence[SideEffect]:
    """Return the effects that the job applied after this one, and that have not been taken back."""
    place = [item.pk for item in seen.siblings].index(seen.effect.pk)
    return [
        item
        for item in seen.siblings[place + 1 :]
        if item.state == EffectState.SUCCEEDED
        and ((row := seen.standing(item)) is None or row.outcome != CompensationOutcome.SUCCEEDED)
    ]


def _can_be_taken_back(effect: SideEffect) -> bool:
    try:
        taking_back_of(effect)
    except (DefinitionError, PayloadError):
        return False
    return True


def _lines(seen: _Seen, how: TakingBack | None, *, by_hand: bool) -> Iterator[str]:
    effect = seen.effect
    reference = f" (provider reference {effect.provider_ref})" if effect.provider_ref else ""
    yield f"{_named(effect)} at {effect.provider} is {effect.state}{reference}."
    done = seen.taking_back
    if done is not None and seen.is_taken_back:
        yield f"Job {done.job_id} took it back before it was given up: the new job sends nothing, and records that."
    elif by_hand:
        yield "Nothing is sent: a job records that it was taken back by hand, or stays on purpose."
    elif how is not None:
        yield (
            f"A new job in queue {seen.job.queue_name} takes it back with {how.operation.name}; a worker whose code "
            "would do something else sends nothing, and leaves a dead letter."
        )
    if seen.job.state == JobState.DEAD_LETTERED and seen.job.resolution is None:
        yield "From then on the job is neither replayed nor discarded, unless the compensation is given up first."
    for other in _later(seen):
        yield f"{_named(other)} came later and stays: this code cannot take it back."
    for adopter in seen.adopters:
        yield f"Job {adopter.pk} ({adopter.job_type}, {adopter.state}) took its receipt too."


def _boxes(seen: _Seen, how: TakingBack | None, *, by_hand: bool) -> Iterator[Acknowledgement]:
    if by_hand:
        yield Acknowledgement(
            name="by_hand",
            label=f"{_named(seen.effect)} was taken back by hand, or stays on purpose; the reason says so.",
        )
    elif how is not None:
        yield Acknowledgement(name="take_back", label=f"{_named(seen.effect)} is taken back at {seen.effect.provider}.")
    for adopter in seen.adopters:
        yield Acknowledgement(
            name=f"adopter:{adopter.pk}", label=f"Job {adopter.pk} ({adopter.state}) relied on this effect too."
        )


def _named(effect: SideEffect) -> str:
    return f"{effect.name} ({effect.business_key})"
