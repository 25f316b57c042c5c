"""A job that books a hotel and a flight and mails the traveller; the bookings can be taken back, the mail cannot."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django_jobs import Confirmed, JobContext, RetryPolicy, effect, job
from django_jobs.domain.effects import Outcome
from django_jobs.exceptions import PermanentError
from django_jobs.models import Job, SideEffect

DAY = timedelta(hours=24)


@dataclass(slots=True)
class Agency:
    """What the provider applied, in order, and the answers that are scripted for it."""

    applied: list[tuple[str, Any]] = field(default_factory=list)
    answers: dict[str, list[Outcome | BaseException]] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)

    def act(self, what: str, call: Any, about: Any) -> Outcome:
        """Apply something and confirm it, unless another answer is scripted."""
        self.keys.append(call.key)
        scripted = self.answers.get(what)
        if scripted:
            answer = scripted.pop(0)
            if isinstance(answer, BaseException):
                raise answer
            return answer
        self.applied.append((what, about))
        return Confirmed(f"{what}-{len(self.applied)}", result={"what": what})


agency = Agency()


@effect("trip.hotel", dedupe="key", key_lifetime=DAY, owner="shop")
def hotel(call: Any, *, city: str) -> Outcome:
    """Book a hotel."""
    return agency.act("hotel", call, city)


@hotel.compensation
def cancel_hotel(call: Any, confirmed: Confirmed, *, city: str) -> Outcome:
    """Give the hotel back."""
    return agency.act("cancel hotel", call, (confirmed.provider_ref, city))


@effect("trip.flight", dedupe="key", key_lifetime=DAY)
def flight(call: Any, *, city: str) -> Outcome:
    """Book a flight."""
    return agency.act("flight", call, city)


@flight.compensation(dedupe="none")
def cancel_flight(call: Any, confirmed: Confirmed, **request: Any) -> Outcome:
    """Give the flight back; the airline knows no keys."""
    return agency.act("cancel flight", call, (confirmed.provider_ref, request))


@effect("trip.mail", dedupe="none")
def mail(call: Any, *, city: str) -> Outcome:
    """Tell the traveller; nothing takes a mail back."""
    return agency.act("mail", call, city)


@job(type="tests.trip", takes_context=True, owner="shop", subject="trip:{city}", retry=RetryPolicy(unknown_attempts=1))
def book(context: JobContext, city: str, steps: list[str], dies: bool = False) -> None:
    """Do the steps, then succeed or die."""
    for step in steps:
        context.effect(step, {"hotel": hotel, "flight": flight, "mail": mail}[step], key=f"trip:{city}", city=city)
    if dies:
        raise PermanentError("no visa")
    with context.complete():
        pass


def effect_of(job_id: Any, name: str) -> SideEffect:
    """Return an effect of a job by its name."""
    return SideEffect.objects.get(job_id=job_id, name=name)


def untouched() -> list[dict[str, Any]]:
    """Return all rows of the jobs that booked, and of their effects, without their revisions."""
    jobs = Job.objects.filter(job_type="tests.trip").order_by("pk")
    rows = [*jobs.values(), *SideEffect.objects.filter(job__in=jobs).order_by("pk").values()]
    return [{name: value for name, value in row.items() if name != "revision"} for row in rows]
