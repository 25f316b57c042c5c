"""Who decides in tests, and rows of decisions with a trait per state."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import factory
from factory.django import DjangoModelFactory

from django_jobs import clock
from django_jobs.domain.ids import uuid7
from django_jobs.models import OperatorAction, ReplayRequest
from django_jobs.operate.action import Decision, Done, Operator
from tests.factories import at


@dataclass
class Person:
    """A user of a site who holds these permissions, written with their app."""

    name: str = "ada"
    holds: set[str] = field(default_factory=set)

    def get_username(self) -> str:
        """Return the name."""
        return self.name

    def has_perm(self, perm: str) -> bool:
        """Say whether the permission is held."""
        return perm in self.holds


def operator(**changes: Any) -> Operator:
    """Return somebody at a shell who gives all that is asked for."""
    values: dict[str, Any] = {"actor": "ada", "owner": "billing", "reason": "checked with the customer", **changes}
    return Operator(**values)


def decided(decision: Decision, **changes: Any) -> Done:
    """Look at a decision and carry it out at once."""
    return decision.submit(operator(**changes), digest=decision.plan().digest)


class OperatorActionFactory(DjangoModelFactory):
    """A decision about nothing in particular."""

    class Meta:
        model = OperatorAction

    class Params:
        now = factory.LazyFunction(clock.now)

    id = factory.LazyFunction(uuid7)
    action = "replay"
    actor = "ada"
    owner = "billing"
    reason_code = "other"
    reason = "checked with the customer"
    created_at = at(seconds=1)


class ReplayRequestFactory(DjangoModelFactory):
    """A replay of every dead letter of the default queue that asks for no effect twice; due now."""

    class Meta:
        model = ReplayRequest

    class Params:
        now = factory.LazyFunction(clock.now)
        running = factory.Trait(state="running")
        done = factory.Trait(state="done", finished_at=at(seconds=1))
        stopped = factory.Trait(state="stopped", finished_at=at(seconds=1), stopped_because="its canary failed")
        cancelled = factory.Trait(state="cancelled", finished_at=at(seconds=1))

    id = factory.LazyFunction(uuid7)
    actor = "ada"
    owner = "billing"
    reason_code = "downstream_back"
    reason = "the provider answers again"
    selection = json.dumps({"filter": {"queue": "default"}})
    acknowledged = json.dumps(["skip"])
    total = 1
    created_at = at(seconds=1)
    next_at = at(seconds=1)
