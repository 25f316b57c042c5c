"""Changing the bounds of a resource while workers run: at once, with who and why."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.domain.lanes import check_resource
from django_jobs.domain.resources import MOST, Bounds, parse_rate
from django_jobs.exceptions import OperatorError
from django_jobs.models import Resource
from django_jobs.operate.action import Decision, Operator, Plan, Target
from django_jobs.store.resources import announce_resources, bounds_of, set_bounds


class ResourceNotFoundError(LookupError):
    """Neither the settings nor a row name this resource."""


class BoundResource(Decision):
    """Let other bounds hold for a resource than the settings say, or those of the settings again.

    Args:
        name: The resource.
        limit: How many jobs that use it run at once; None: as the settings say.
        rate: How many start, as ``10/s``; empty: as the settings say.
        using: The database.

    Raises:
        OperatorError: A bound cannot be.
        KeyFormatError: The name cannot be one of a resource.
    """

    name = "bound_resource"
    permission = "bound_resource"

    def __init__(self, name: str, *, limit: int | None = None, rate: str = "", using: str) -> None:
        super().__init__(using=using)
        self.resource = check_resource(name)
        self.limit = _checked_limit(limit)
        self.rate = _checked_rate(rate)

    def row(self) -> Resource:
        """Read the resource's row.

        Raises:
            ResourceNotFoundError: There is none, and the settings do not name it.
        """
        found = Resource.objects.using(self.using).filter(name=self.resource).first()
        if found is None and self.resource not in get_settings().resources:
            msg = f"There is no resource {self.resource!r}: the settings do not name it, and no job has used it."
            raise ResourceNotFoundError(msg)
        return found or Resource(name=self.resource)

    def plan(self) -> Plan:
        """Say what holds now and what would.

        Raises:
            ResourceNotFoundError: There is no such resource.
        """
        row = self.row()
        before = bounds_of(row.name, max_running=row.max_running, max_rate=row.max_rate)
        after = bounds_of(row.name, max_running=self.limit, max_rate=self.rate)
        return Plan(
            action=self.name,
            title=f"Change the bounds of {row.name}",
            refused="",
            facts={
                "resource": row.name,
                "limit": row.max_running,
                "rate": row.max_rate,
                "new_limit": self.limit,
                "new_rate": self.rate,
            },
            lines=tuple(self._lines(before, after)),
        )

    def _lines(self, before: Bounds, after: Bounds) -> Iterator[str]:
        yield f"Now: {bounds_text(before)}."
        source = "" if self.limit is not None or self.rate else ", as the settings say"
        yield f"Then: {bounds_text(after)}{source}."
        if before == after:
            yield "That is what holds already."
        if after.limit is not None and (before.limit is None or after.limit < before.limit):
            yield "What runs goes on, also where more run than may then; nothing new of it starts until there is room."
        yield "It holds for all workers from their next claim on."

    def lock(self) -> None:
        """Lock the row, which is made if there is none yet."""
        if self.resource in get_settings().resources:
            announce_resources(using=self.using)
        list(Resource.objects.using(self.using).filter(name=self.resource).select_for_update().values_list("name"))

    def target(self) -> Target:
        """Return nothing: the plan has the resource."""
        return Target()

    def act(self, operator: Operator, action_id: uuid.UUID) -> tuple[str, Mapping[str, Any]]:  # noqa: ARG002
        """Write the bounds."""
        set_bounds(self.resource, max_running=self.limit, max_rate=self.rate, using=self.using)
        bounds = bounds_of(self.resource, max_running=self.limit, max_rate=self.rate)
        return f"Resource {self.resource}: {bounds_text(bounds)}.", {"limit": bounds.limit, "rate": self.rate}


def bounds_text(bounds: Bounds) -> str:
    """Say bounds in plain English."""
    parts = []
    if bounds.limit is not None:
        parts.append(f"at most {bounds.limit} run at once")
    if bounds.rate is not None:
        parts.append(f"at most {bounds.rate.text} start, {bounds.rate.burst} at once after a rest")
    return ", and ".join(parts) or "no bound"


def _checked_limit(limit: object) -> int | None:
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST:
        msg = f"A limit is a whole number from 1 to {MOST:,}, not {limit!r}; to stop a resource, pause it."
        raise OperatorError(msg)
    return limit


def _checked_rate(rate: object) -> str:
    if rate == "":
        return ""
    try:
        return parse_rate(rate).text
    except ValueError as error:
        msg = f"A rate {error}."
        raise OperatorError(msg) from None
