"""The permission matrix: who gets what answer from every address of the app in the admin, by GET and by POST."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.core import serializers
from django.db import models
from django.test import Client

from django_jobs.admin.decisions import OFFERS, offers_of
from django_jobs.admin.jobs import JobAdmin
from django_jobs.admin.pages import PAGES
from django_jobs.admin.replaying_many import MANY
from django_jobs.models import Job
from django_jobs.operate.roles import LEAD, OPERATOR, VIEWER, roles
from tests.factories import JobFactory
from tests.factories_pages import one_of_each, person
from tests.integration.admin.conftest import address
from tests.integration.commands.test_jobs_command import jobs

pytestmark = pytest.mark.django_db

ROLES: dict[str, frozenset[str]] = {"staff": frozenset(), **roles()}
LOGIN, FORBIDDEN, SEEN = 302, 403, 200


def addresses(rows: dict[type[models.Model], Any]) -> Iterator[tuple[str, str, str]]:
    """Yield every address with the permission that a GET needs, and the one that a POST needs ("" : nobody may)."""
    for model in PAGES:
        name, row = model._meta.model_name, rows.get(model, rows[Job])
        look = f"view_{name}"
        yield address(name, "changelist"), look, look
        yield address(name, "change", row.pk), look, ""
        yield address(name, "history", row.pk), look, look
        yield address(name, "add"), "", ""
        yield address(name, "delete", row.pk), "", ""
        for offer in offers_of(model):
            yield address(name, offer.path.replace("-", "_"), row.pk), offer.permission, offer.permission
    many = f"{address('deadletter', 'replay_many')}?ids={rows[Job].pk}"
    yield many, MANY.permission, MANY.permission


def everything() -> str:
    """Return every row that an operator could change, and what is on record."""
    stored = [*Job.objects.all(), *LogEntry.objects.all()]
    for model in PAGES:
        if not model._meta.proxy:
            stored += model._default_manager.order_by("pk")
    return json.dumps(serializers.serialize("python", stored), default=str)


def test_nobody_gets_anywhere_without_logging_in(client: Client) -> None:
    """Every address sends a stranger to the login, and writes nothing."""
    rows = one_of_each()
    before = everything()
    for url, _, _ in addresses(rows):
        for answer in (client.get(url), client.post(url)):
            assert (answer.status_code, "/login/" in answer["Location"]) == (LOGIN, True), url
    assert everything() == before


@pytest.mark.parametrize("role", ["staff", VIEWER, OPERATOR, LEAD, "superuser"])
def test_each_role_gets_what_it_may(client: Client, role: str) -> None:
    """Whoever may not gets 403 from GET and POST; an empty POST of whoever may writes nothing either."""
    jobs("groups")
    holds = ROLES.get(role)
    client.force_login(person(role, is_staff=True, is_superuser=role == "superuser"))
    rows = one_of_each()
    before = everything()
    for url, look, act in addresses(rows):
        for answer, needed in ((client.get(url), look), (client.post(url), act)):
            allowed = bool(needed) and (holds is None or needed in holds)
            assert answer.status_code == (SEEN if allowed else FORBIDDEN), (role, url, answer.request["REQUEST_METHOD"])
    assert everything() == before


@pytest.mark.parametrize("name", ["change", "history", "payload", "cancel"])
def test_whoever_sees_dead_letters_alone_sees_no_other_job(client: Client, name: str) -> None:
    """The pages of dead letters are those of all jobs, for whoever may see all jobs; for others there is none there."""
    user = person(is_staff=True)
    given = ["view_deadletter", "view_job_payload", "cancel_job"]
    user.user_permissions.set(Permission.objects.filter(codename__in=given))
    client.force_login(user)
    dead, other = JobFactory(dead_lettered=True), JobFactory(queued=True)

    assert client.get(address("deadletter", name, dead.pk)).status_code == SEEN
    for answer in (
        client.get(address("deadletter", name, other.pk)),
        client.post(address("deadletter", name, other.pk)),
    ):
        assert (answer.status_code, str(other.pk) in answer.content.decode()) in [
            (302, False),
            (403, False),
            (404, False),
        ]

    user.user_permissions.add(Permission.objects.get(codename="view_job"))
    assert client.get(address("deadletter", name, other.pk)).status_code == SEEN


@pytest.mark.parametrize("name", ["change", "history", "payload", "replay"])
def test_project_that_shows_some_rows_shows_their_decisions_alone(
    client: Client, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whether a user may see this row is asked of the page, as Django asks it, on the pages of decisions too."""
    user = person(is_staff=True, is_superuser=True)
    client.force_login(user)
    mine, theirs = JobFactory(dead_lettered=True, subject="mine"), JobFactory(dead_lettered=True, subject="theirs")
    monkeypatch.setattr(
        JobAdmin, "has_view_permission", lambda page, request, obj=None: obj is None or obj.subject == "mine"
    )

    assert client.get(address("job", name, mine.pk)).status_code == SEEN
    assert client.get(address("job", name, theirs.pk)).status_code == FORBIDDEN
    assert client.post(address("job", name, theirs.pk)).status_code == FORBIDDEN


def test_every_decision_needs_a_permission_of_some_role() -> None:
    """No decision is offered that only a superuser could take."""
    needed = {MANY.permission, *(offer.permission for offers in OFFERS.values() for offer in offers)}

    assert needed
    assert needed <= roles()[LEAD]
    assert not needed & roles()[VIEWER]
