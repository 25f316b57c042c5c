"""Which dead letters a decision about many is about: named ones, or all that a filter finds."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from django.db.models import QuerySet

from django_jobs.exceptions import OperatorError
from django_jobs.models import Job
from django_jobs.operate.history import plain

MOST_IDS = 500
_COLUMNS = {
    "queue": ("queue_name", 100),
    "job_type": ("job_type", 200),
    "dead_reason": ("dead_reason", 16),
    "error_fingerprint": ("error_fingerprint", 67),
    "error_class": ("error_class", 10),
    "owner": ("owner", 100),
    "subject": ("subject", 200),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Dead letters by id (up to 500), or by a filter of which every given part must hold.

    Args:
        ids: Job ids; not together with a filter.
        queue: The queue's name.
        job_type: The stored type.
        dead_reason: Why they wait for a human.
        error_fingerprint: The group of the last error.
        error_class: The class of the last error.
        owner: The job's owner.
        subject: What the job is about.
        dead_from: Dead since then or later.
        dead_to: Dead before then.

    Raises:
        OperatorError: Nothing is given, too much, or something that no row can hold: an empty filter is not "all".
    """

    ids: Sequence[uuid.UUID] = ()
    queue: str = ""
    job_type: str = ""
    dead_reason: str = ""
    error_fingerprint: str = ""
    error_class: str = ""
    owner: str = ""
    subject: str = ""
    dead_from: datetime | None = None
    dead_to: datetime | None = None

    def __post_init__(self) -> None:
        if len(self.ids) > MOST_IDS:
            msg = f"At most {MOST_IDS} jobs can be named; these are {len(self.ids)}. Use a filter."
            raise OperatorError(msg)
        if not all(isinstance(item, uuid.UUID) for item in self.ids):
            msg = "Jobs are named by their ids, each a UUID."
            raise OperatorError(msg)
        for name, (_, limit) in _COLUMNS.items():
            _check_text(name, getattr(self, name), limit)
        for name in ("dead_from", "dead_to"):
            _check_time(name, getattr(self, name))
        if bool(self.ids) == bool(self._filter()):
            msg = "Name the jobs, or give a filter with at least one condition; not both. An empty filter is not 'all'."
            raise OperatorError(msg)

    def _filter(self) -> dict[str, Any]:
        names = [field.name for field in fields(self) if field.name != "ids"]
        return {name: value for name in names if (value := getattr(self, name)) not in ("", None)}

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values: ``{"ids": […]}`` or ``{"filter": {…}}``."""
        if self.ids:
            return {"ids": [str(item) for item in sorted(set(self.ids))]}
        return {"filter": {name: plain(value) for name, value in self._filter().items()}}

    def jobs(self, *, using: str, dead_until: datetime | None = None) -> QuerySet[Job]:
        """Return the jobs that are named, or the dead letters without a resolution that the filter finds.

        ``dead_until`` leaves out what a filter finds and what died after then.
        """
        jobs = Job.objects.using(using)
        if self.ids:
            return jobs.filter(pk__in=list(self.ids))
        found = jobs.dead().filter(
            **{column: value for name, (column, _) in _COLUMNS.items() if (value := getattr(self, name))}
        )
        if self.dead_from is not None:
            found = found.filter(dead_at__gte=self.dead_from)
        if self.dead_to is not None:
            found = found.filter(dead_at__lt=self.dead_to)
        return found if dead_until is None else found.filter(dead_at__lte=dead_until)

    def page(self, *, using: str, after: uuid.UUID | None, limit: int, dead_until: datetime | None = None) -> list[Job]:
        """Return the next jobs in the order of their ids."""
        found = self.jobs(using=using, dead_until=dead_until)
        if after is not None:
            found = found.filter(pk__gt=after)
        return list(found.order_by("pk")[:limit])


def selection_of(text: str) -> Selection:
    """Read what :meth:`Selection.as_dict` wrote.

    Raises:
        OperatorError: It is something else.
    """
    stored = json.loads(text)
    if "ids" in stored:
        return Selection(ids=[uuid.UUID(item) for item in stored["ids"]])
    return selection_from(stored.get("filter", {}))


def selection_from(values: Mapping[str, Any]) -> Selection:
    """Make a filter of texts, as a form, an address or a stored request has them; empty ones are left away.

    Raises:
        OperatorError: A name is not known, a value cannot be meant, or nothing is left.
    """
    unknown = sorted(set(values) - {*_COLUMNS, "dead_from", "dead_to"})
    if unknown:
        msg = f"There is no filter {unknown[0]!r}; there are {', '.join(_COLUMNS)}, dead_from, dead_to."
        raise OperatorError(msg)
    given = {name: value for name, value in values.items() if value not in ("", None)}
    for name in ("dead_from", "dead_to"):
        if isinstance(given.get(name), str):
            try:
                given[name] = datetime.fromisoformat(given[name])
            except ValueError:
                msg = f"{name} must be a time such as 2026-11-29T18:00:00Z, not {given[name]!r}."
                raise OperatorError(msg) from None
    return Selection(**given)


def _check_text(name: str, value: object, limit: int) -> None:
    if not isinstance(value, str) or len(value) > limit or not value.isprintable():
        msg = f"The filter {name} must be printable text of up to {limit} signs, not {value!r}."
        raise OperatorError(msg)


def _check_time(name: str, value: object) -> None:
    if value is None:
        return
    try:
        if isinstance(value, datetime) and value.utcoffset() is not None:
            value.astimezone(UTC)
            return
    except OverflowError:
        pass
    msg = f"The filter {name} must be an aware datetime, not {value!r}."
    raise OperatorError(msg)
