"""The audit: one row per decision, written in the transaction that carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_jobs.domain.ids import uuid7
from django_jobs.models import OperatorAction
from django_jobs.store.times import read_now


def record(
    *,
    action: str,
    actor: str,
    owner: str,
    reason_code: str,
    reason: str,
    ticket: str,
    digest: str,
    plan: str,
    target: Mapping[str, Any],
    using: str,
) -> OperatorAction:
    """Insert the row of a decision; ``digest`` was acknowledged and found equal to the plan's under the lock."""
    return OperatorAction.objects.using(using).create(
        id=uuid7(),
        action=action,
        actor=actor,
        owner=owner,
        reason_code=reason_code,
        reason=reason,
        ticket=ticket,
        given_digest=digest,
        plan_digest=digest,
        plan=plan,
        created_at=read_now(using),
        **target,
    )
