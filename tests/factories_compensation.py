"""Compensations for tests: rows with a trait per outcome, and operators who decide."""

from __future__ import annotations

import uuid
from typing import Any

import factory
from factory.django import DjangoModelFactory

from django_jobs import clock
from django_jobs.domain.ids import uuid7
from django_jobs.models import Compensation
from django_jobs.operate.action import Done, Operator
from django_jobs.operate.compensate import Compensate
from tests.factories import SideEffectFactory, at


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


def operator(**changes: Any) -> Operator:
    """Ada, who decides for billing."""
    values = {"actor": "ada", "owner": "billing", "reason": "the customer gave it back", "reason_code": "other"}
    return Operator(**{**values, **changes})


def compensate(effect_id: uuid.UUID, *, by_hand: bool = False) -> Done:
    """Look, acknowledge and act at once."""
    decision = Compensate(effect_id, using="default", by_hand=by_hand)
    return decision.submit(operator(), digest=decision.plan().digest)
