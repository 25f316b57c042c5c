"""What a person does in the run: replay a dead letter on the admin's page, and pay an order back."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser
from uuid import UUID

from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from django_jobs.models import Job, SideEffect
from django_jobs.operate.action import Operator
from django_jobs.operate.compensate import Compensate
from testproject.demo.errors import DemoError

NAME = "demo-operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A dead letter that was replayed on its page."""

    job: UUID
    reason: str
    status: int  # of the answer to the form


@dataclass(frozen=True, slots=True, kw_only=True)
class Refunded:
    """A charge that was taken back."""

    order: int
    effect: UUID
    job: UUID  # the one that was charged
    action: UUID


class Form(HTMLParser):
    """The fields of a page's forms with their values; every box is ticked."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.values: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an input field."""
        given = dict(attrs)
        name = given.get("name")
        if tag == "input" and name and given.get("type") != "submit":
            self.values[name] = "on" if given.get("type") == "checkbox" else given.get("value") or ""


def replay(job: Job) -> Replayed:
    """Open the page of a dead letter's replay as a browser would, read it, and submit its form."""
    user, _ = User.objects.get_or_create(username=NAME, defaults={"is_staff": True, "is_superuser": True})
    client = Client()
    client.force_login(user)
    address = reverse("admin:django_jobs_job_replay", args=[job.pk])
    page = client.get(address)
    if page.status_code != 200:
        raise DemoError(f"The page {address} answered {page.status_code}.")
    fields = Form(page.content.decode()).values
    fields |= {
        "owner": "shop",
        "reason_code": "data_corrected",
        "reason": "The customer's name is there now.",
    }
    answer = client.post(address, fields)
    if answer.status_code not in (302, 303):
        raise DemoError(f"The replay was not accepted: {address} answered {answer.status_code}.")
    return Replayed(job=job.pk, reason=job.dead_reason, status=answer.status_code)


def refund(order_id: int, job_id: UUID) -> Refunded:
    """Take the charge of an order back: look at the plan, and acknowledge it."""
    effect = SideEffect.objects.get(job_id=job_id, name="charge")
    decision = Compensate(effect.pk, using="default")
    plan = decision.plan()
    if plan.refused:
        raise DemoError(f"The charge of order {order_id} cannot be taken back: {plan.refused}")
    operator = Operator(actor=NAME, owner="billing", reason="The customer sent the goods back.")
    done = decision.submit(operator, digest=plan.digest)
    return Refunded(order=order_id, effect=effect.pk, job=job_id, action=done.action.pk)
