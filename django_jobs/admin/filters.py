"""Filters whose choices are constants or come from the registry: no list is read to offer them."""

# ruff: noqa: ARG002  Django's signatures
from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest

from django_jobs.define import registry
from django_jobs.domain.ids import first_id
from django_jobs.domain.states import ErrorClass
from django_jobs.models import Attempt
from django_jobs.operate.listing import parse_span
from django_jobs.store.times import read_now

SPANS = (("1h", "the last hour"), ("24h", "the last 24 hours"), ("7d", "the last 7 days"), ("30d", "the last 30 days"))
_SKEW = timedelta(days=1)  # how far a producer's clock, which is in the ids, may be from the database's

Choices = Callable[[], Iterable[str]]


class Chosen(admin.SimpleListFilter):
    """Rows whose ``column`` has the chosen value; of a hand-written value that is no choice there are none."""

    column: ClassVar[str]
    choices_of: ClassVar[Choices]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Offer the choices."""
        return [(value, value.replace("_", " ")) for value in type(self).choices_of()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Filter by the column."""
        value = self.value()
        if value is None:
            return queryset
        known = {key for key, _ in self.lookup_choices}
        return queryset.filter(**{self.column: value}) if value in known else queryset.none()


def chosen(title: str, column: str, choices: Iterable[str], *, name: str = "") -> type[Chosen]:
    """Return a filter over the values of a column, which are constants."""
    values = [str(value) for value in choices]
    attributes = {
        "title": title,
        "parameter_name": name or column,
        "column": column,
        "choices_of": staticmethod(lambda: values),
    }
    return type(f"{column.title()}Filter", (Chosen,), attributes)


def job_types() -> list[str]:
    """Return the job types that this code knows, older names included."""
    return sorted(name for name, _ in registry.definitions())


def queues() -> list[str]:
    """Return the queues that job types are declared for."""
    return sorted({definition.options.queue_name for _, definition in registry.definitions()} | {"default"})


class TypeFilter(Chosen):
    """Job types of this code; one that it does not know can be given in the address, as groups of dead letters do."""

    title = "job type"
    parameter_name = "job_type"
    column = "job_type"
    choices_of = staticmethod(job_types)

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Offer the known types, and the given one."""
        given = self.used_parameters.get(self.parameter_name)
        value = given[-1] if isinstance(given, list) else given
        more = [value] if value and value.isprintable() and value not in job_types() else []
        return [(name, name) for name in [*job_types(), *more]]


class QueueFilter(Chosen):
    """Queues of this code."""

    title = "queue"
    parameter_name = "queue"
    column = "queue_name"
    choices_of = staticmethod(queues)


ErrorClassFilter = chosen("error class", "error_class", ErrorClass)


class AgeFilter(admin.SimpleListFilter):
    """Fixed spans; ids sort by time, so the primary key bounds the look and the column decides."""

    title = "created in"
    parameter_name = "age"
    column = "created_at"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Offer the spans."""
        return list(SPANS)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep what is younger."""
        return newer(queryset, self.value(), self.column) if self.value() else queryset


def newer(queryset: QuerySet[Any], span: str | None, column: str, *, by_id: bool = True) -> QuerySet[Any]:
    """Keep the rows of one of ``SPANS``, by a column, and by the id where the id was made at that time."""
    if span not in dict(SPANS):
        return queryset.none()
    since = read_now(queryset.db) - parse_span(span)
    found = queryset.filter(**{f"{column}__gte": since})
    return found.filter(pk__gte=first_id(since - _SKEW)) if by_id else found


class NeedsFilter(admin.SimpleListFilter):
    """What somebody should look at."""

    title = "needs a person"
    parameter_name = "needs"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Offer each reason."""
        return [
            ("dead", "dead letters without a decision"),
            ("expired", "running past the lease"),
            ("lost24h", "lost an attempt, created in 24 hours"),
            ("lost7d", "lost an attempt, created in 7 days"),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Filter by the reason."""
        match self.value():
            case None:
                return queryset
            case "dead":
                return queryset.filter(state="dead_lettered", resolution__isnull=True)
            case "expired":
                return queryset.filter(state="running", lease_expires_at__lt=read_now(queryset.db))
            case "lost24h" | "lost7d" as value:
                lost = Attempt.objects.using(queryset.db).lost().filter(job_id=OuterRef("pk"))
                return newer(queryset.filter(Exists(lost)), value.removeprefix("lost"), "created_at")
            case _:
                return queryset.none()
