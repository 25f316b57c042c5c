"""Bounding a resource by hand: the decision, the command line, the admin, and what people are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.exceptions import PermissionDenied
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.urls import reverse
from prometheus_client import CollectorRegistry

from django_jobs import clock
from django_jobs.checks import check_resources
from django_jobs.exceptions import ActionChangedError, KeyFormatError, OperatorError
from django_jobs.models import Job, OperatorAction, Resource
from django_jobs.observe.gauges import DatabaseGauges
from django_jobs.operate.action import Operator
from django_jobs.operate.bound_resource import BoundResource, ResourceNotFoundError
from django_jobs.operate.explain import explain
from django_jobs.store.pauses import pause
from django_jobs.store.resources import hold_resource, spend, stands
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db

API = "payments-api"
ANN = Operator(actor="ann", owner="shop", reason="the provider allows more now")
WHO = ("--as", "ann", "--owner", "shop", "--reason", "the provider allows more now")


@pytest.fixture(autouse=True)
def resources(settings: Any) -> None:
    """One resource with both bounds."""
    settings.DJANGO_JOBS = {
        **getattr(settings, "DJANGO_JOBS", {}),
        "RESOURCES": {API: {"limit": 2, "rate": "60/m"}},
    }


def jobs(*args: str) -> str:
    """Run a verb and return what it wrote."""
    out = StringIO()
    call_command("jobs", *args, stdout=out)
    return out.getvalue()


def bound(**values: Any) -> BoundResource:
    """Carry a change of bounds out."""
    decision = BoundResource(API, using="default", **values)
    decision.submit(ANN, digest=decision.plan().digest)
    return decision


def test_new_bounds_hold_at_once_and_are_audited() -> None:
    """The plan says what holds and what would; then the next claim counts against it, and the settings can be had back."""
    decision = BoundResource(API, limit=5, using="default")
    plan = decision.plan()
    assert "Now: at most 2 run at once, and at most 60/m start, 1 at once after a rest." in plan.lines
    assert "Then: at most 5 run at once, and at most 60/m start, 1 at once after a rest." in plan.lines

    done = decision.submit(ANN, digest=plan.digest)

    assert done.message.startswith("Resource payments-api: at most 5 run at once")
    assert stands([API], using="default")[API].standing.bounds.limit == 5
    assert OperatorAction.objects.get().action == "bound_resource"
    bound()
    assert stands([API], using="default")[API].standing.bounds.limit == 2


def test_what_changed_meanwhile_is_not_overwritten() -> None:
    """Two people look, one decides first: the other's plan is an old one."""
    first, second = BoundResource(API, limit=5, using="default"), BoundResource(API, limit=9, using="default")
    digest = second.plan().digest
    first.submit(ANN, digest=first.plan().digest)
    with pytest.raises(ActionChangedError):
        second.submit(ANN, digest=digest)
    assert "That is what holds already." in first.plan().lines


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "3", 10**9])
def test_limits_that_cannot_be_are_refused(limit: Any) -> None:
    """Zero is no limit but a stop, which a pause says with who and why."""
    with pytest.raises(OperatorError, match="A limit is a whole number"):
        BoundResource(API, limit=limit, using="default")


def test_rates_names_and_people_are_checked() -> None:
    """A rate that is none, a name that is none, a resource that nobody knows, a user who may not."""
    with pytest.raises(OperatorError, match="A rate must be a number per"):
        BoundResource(API, rate="fast", using="default")
    with pytest.raises(KeyFormatError):
        BoundResource("!", using="default")
    with pytest.raises(ResourceNotFoundError, match="There is no resource 'nothing'"):
        BoundResource("nothing", limit=1, using="default").plan()
    decision = BoundResource(API, limit=5, using="default")
    eve = Operator(actor="eve", owner="shop", reason="just because I can", user=User.objects.create_user("eve"))
    with pytest.raises(PermissionDenied):
        decision.submit(eve, digest=decision.plan().digest)
    assert stands([API], using="default")[API].standing.bounds.limit == 2


def test_verbs_list_and_bound() -> None:
    """A person at a shell sees what bounds a resource and what holds it, and changes it after looking."""
    JobFactory.create_batch(2, running=True, resource=API, lane=API)
    pause("resource", API, actor="bob", reason="their night", using="default")
    listed = jobs("resources")
    assert "runs at most 2 at once, and 2 run now" in listed
    assert "paused by bob" in listed
    planned = json.loads(jobs("bound", API, "--limit", "7", *WHO, "--json"))
    assert "at most 7 run at once" in jobs("bound", API, "--limit", "7", *WHO, "--ack", planned["digest"])
    found = json.loads(jobs("resources", "--json"))
    assert (found["limit"], found["by_hand"], found["running"], found["paused_by"]) == (7, True, 2, "bob")
    with pytest.raises(CommandError, match="A rate must be"):
        jobs("bound", API, "--rate", "fast", *WHO)
    with pytest.raises(CommandError, match="There is no resource"):
        jobs("bound", "nothing", "--limit", "1", *WHO)


def test_verb_says_that_there_is_none(settings: Any) -> None:
    """Without a resource the list says where they are named; pausing one that nobody names says so too."""
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "RESOURCES": {}}
    assert "There is no resource" in jobs("resources")
    assert "name no resource 'old-api'" in jobs("pause", "resource", "old-api", "--as", "ann", "--reason", "gone")


def test_admin_shows_resources_and_changes_bounds(client: Client) -> None:
    """The list, the page, and the page of the decision; a reader may only look."""
    row = Resource.objects.create(name=API)
    user = User.objects.create_user("ann", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_resource"))
    client.force_login(user)
    assert "limit 2, 60/m" in client.get(reverse("admin:django_jobs_resource_changelist")).content.decode()
    page = reverse("admin:django_jobs_resource_bound", args=[row.pk])
    assert client.get(page).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="bound_resource"))
    user = User.objects.get(pk=user.pk)
    client.force_login(user)
    detail = client.get(reverse("admin:django_jobs_resource_change", args=[row.pk])).content.decode()
    assert "Change the bounds" in detail
    assert 'name="limit"' in client.get(page).content.decode()


def test_job_says_why_it_waits() -> None:
    """A full resource, a rate that is spent, a downstream's wish and a pause are each told of a waiting job."""
    job = JobFactory(resource=API, lane=API)
    assert "It uses the resource payments-api." in _told(job)
    assert "Resource 'payments-api'" not in _told(job)
    JobFactory.create_batch(2, running=True, resource=API, lane=API)
    assert "runs at most 2 at once, and 2 run now" in _told(job)
    spend({API: 1}, stands([API], using="default"), using="default")
    assert "starts at most 60/m" in _told(job)
    hold_resource(API, timedelta(minutes=5), job_id=job.pk, using="default")
    assert "its downstream asked for that" in _told(job)
    pause("resource", API, actor="bob", reason="their night", using="default")
    assert "Resource 'payments-api' is paused by bob" in _told(job)


def _told(job: Job) -> str:
    return "\n".join(line for section in explain(job, using="default").sections for line in section.lines)


def test_metrics_tell_of_resources() -> None:
    """Running jobs, the limit, and whether somebody holds it."""
    JobFactory(running=True, resource=API, lane=API)
    registry = CollectorRegistry()
    registry.register(DatabaseGauges("default"))
    labels = {"resource": API}
    assert registry.get_sample_value("django_jobs_resource_running_jobs", labels) == 1
    assert registry.get_sample_value("django_jobs_resource_limit_jobs", labels) == 2
    assert registry.get_sample_value("django_jobs_resource_held", labels) == 0
    hold_resource(API, timedelta(minutes=5), job_id=Job.objects.get().pk, using="default")
    again = CollectorRegistry()
    again.register(DatabaseGauges("default"))
    assert again.get_sample_value("django_jobs_resource_held", labels) == 1


def test_undeclared_resource_is_an_error_of_the_check(declare_resource: Callable[[str], None], settings: Any) -> None:
    """A name that the settings do not have bounds nothing, so the site does not start with it."""
    declare_resource(API)
    assert check_resources() == []
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "RESOURCES": {}}
    (found,) = check_resources()
    assert (found.id, API in found.msg) == ("django_jobs.E107", True)


@pytest.fixture
def declare_resource() -> Any:
    """Declare a job type that uses a resource, for this test."""
    from django_jobs import job
    from django_jobs.define.registry import unregister

    def declare(resource: str) -> None:
        job(type="tests.uses_resource", resource=resource)(lambda: None)

    yield declare
    unregister("tests.uses_resource")


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        ({"": {}}, "resource is empty"),
        ({"!x": {}}, "marks jobs that stand apart"),
        ({"a": {"limits": 3}}, "Did you mean limit"),
        ({"a": {"limit": 0}}, "whole number of at least 1"),
        ({"a": {"rate": "x"}}, "must be a number per"),
        ({"a": {"burst": 3}}, "no rate that it belongs to"),
        ({"a": {"rate": "1/s", "burst": True}}, "whole number of at least 1"),
    ],
)
def test_settings_that_cannot_be_are_named(resources: Any, why: str) -> None:
    """Each mistake in RESOURCES is said in plain English, at start."""
    from django_jobs.conf import problems

    (found,) = problems({"RESOURCES": resources})
    assert why in found


def test_stored_rate_that_is_none_falls_back_to_the_settings() -> None:
    """What somebody wrote into the row by other means must not stop every claim."""
    Resource.objects.create(name=API, max_rate="<b>")
    rate = stands([API], using="default")[API].standing.bounds.rate
    assert rate is not None
    assert rate.text == "60/m"
    assert clock.now() >= stands([API], using="default")[API].at - timedelta(minutes=1)
