"""Compensations for tests: rows with a trait per outcome, and operators who decide."""

from __future__ import annotations

import uuid

import factory
from factory.django import DjangoModelFactory

from django_jobs import clock
from django_jobs.domain.ids import uuid7
from django_jobs.models import Compensation
from django_jobs.operate.action import Done
from django_jobs.operate.compensate import Compensate
from tests.factories import SideEffectFactory, at
from tests.factories_decisions import decided


class CompensationFactory(DjangoModelFactory):
    """A compensation that is open; its job and its audit row are ids only."""

    class Meta:
        model = Compensation

    class Params:
        now = factory.LazyFunction(clock.now)
        open = factory.Trait(outcome="open")
        succeeded = factory.Trait(outcome="succeeded", closed_at=at(seconds=1))
        void = factory.Trait(outcome="void", closed_at=at(seconds=1))

    id = factory.LazyFunction(uuid7)
    effect = factory.SubFactory(SideEffectFactory, succeeded=True)
    original_job_id = factory.SelfAttribute("effect.job_id")
    job_id = factory.LazyFunction(uuid7)
    action_id = factory.LazyFunction(uuid7)
    created_at = at(seconds=2)


def compensate(effect_id: uuid.UUID, *, by_hand: bool = False) -> Done:
    """Look, acknowledge and act at once."""
    return decided(Compensate(effect_id, using="default", by_hand=by_hand))
