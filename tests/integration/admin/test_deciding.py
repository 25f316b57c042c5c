"""The page of a decision: GET shows, POST acts on what was seen, and nothing happens twice."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_jobs.exceptions import RowBusyError
from django_jobs.models import Job, OperatorAction
from django_jobs.operate.discard import Discard
from django_jobs.operate.replay import Replay
from tests.factories import IdempotencyKeyFactory, JobFactory, WorkerFactory
from tests.factories_pages import person
from tests.integration.admin.conftest import address

pytestmark = pytest.mark.django_db

WHY = {"owner": "billing", "reason_code": "other", "reason": "paid by hand on Monday"}


@pytest.fixture
def dead() -> Job:
    """A dead letter of a type that this code does not know, so that its rows need a yes too."""
    return JobFactory(dead_lettered=True)


def token(page: HttpResponse) -> str:
    """Return the token of the form on a page."""
    found = re.search(r'name="state_token" value="([^"]*)"', page.content.decode())
    assert found is not None
    return found[1]


def boxes(page: HttpResponse) -> dict[str, str]:
    """Return every acknowledgement that the form asks for, ticked."""
    return dict.fromkeys(re.findall(r'type="checkbox" name="(ack_[^"]+)"', page.content.decode()), "on")


def filled(page: HttpResponse, **changes: Any) -> dict[str, Any]:
    """Fill in the form of a page, every box ticked."""
    return {"extra_attempts": "0", **WHY, "state_token": token(page), **boxes(page), **changes}


def states() -> list[tuple[str, int]]:
    """Return what a decision can change, and how many decisions are on record in both places."""
    return [
        *Job.objects.order_by("pk").values_list("state", "revision"),
        ("audit", OperatorAction.objects.count()),
        ("log", LogEntry.objects.count()),
    ]


def test_get_shows_the_plan_and_writes_nothing(root: Client, dead: Job) -> None:
    """The page says what would happen and asks for a yes to each danger; no statement writes."""
    url = address("job", "replay", dead.pk)
    with CaptureQueriesContext(connection) as queries:
        page = root.get(url)

    text = page.content.decode()
    assert page.status_code == 200
    assert f"Replay job {dead.pk}" in text
    assert "attempts so far: 1, last error ValueError" in text
    assert set(boxes(page)) == {"ack_state", "ack_rows", "ack_same_code"}
    assert [q["sql"] for q in queries if re.match(r"\s*(INSERT|UPDATE|DELETE)", q["sql"], re.IGNORECASE)] == []


def test_post_acts_records_and_returns_to_the_list(root: Client, dead: Job) -> None:
    """A confirmed replay queues the job, writes the audit and Django's log, and goes back to the list as it was."""
    url = address("deadletter", "replay", dead.pk) + "?_changelist_filters=list%3D1%26age%3D24h"
    done = root.post(url, filled(root.get(url)))

    assert done.status_code == 303
    assert done["Location"] == address("deadletter", "changelist") + "?list=1&age=24h"
    dead.refresh_from_db()
    assert (dead.state, dead.generation) == ("queued", 2)
    action = OperatorAction.objects.get()
    assert (action.action, action.owner, action.reason) == ("replay", "billing", "paid by hand on Monday")
    entry = LogEntry.objects.get()
    assert entry.object_id == str(dead.pk)
    assert str(action.pk) in entry.change_message
    assert f"Job {dead.pk} is queued" in root.get(done["Location"]).content.decode()


@pytest.mark.parametrize("missing", ["owner", "reason", "reason_code", "ack_state", "ack_rows"])
def test_nothing_happens_without_a_name_a_reason_and_each_yes(root: Client, dead: Job, missing: str) -> None:
    """What is left out is asked for again, what was written stays, and nothing is decided."""
    url, before = address("job", "replay", dead.pk), states()
    form = filled(root.get(url))
    del form[missing]
    page = root.post(url, form)

    assert page.status_code == 200
    assert "This field is required." in page.content.decode()
    assert "paid by hand on Monday" in page.content.decode() or missing == "reason"
    assert states() == before


def test_what_changed_since_is_shown_and_not_done(root: Client, dead: Job) -> None:
    """A plan that is no longer true is refused with 409; the page shows the new one, its boxes empty."""
    url = address("job", "replay", dead.pk)
    form = filled(root.get(url))
    IdempotencyKeyFactory(job_id=dead.pk)
    Job.objects.filter(pk=dead.pk).update(revision=dead.revision + 1)
    before = states()
    page = root.post(url, form)

    assert page.status_code == 409
    assert "This changed since you looked; nothing was done." in page.content.decode()
    assert token(page) != form["state_token"]
    assert re.search(r'type="checkbox"[^>]* checked', page.content.decode()) is None
    assert "paid by hand on Monday" in page.content.decode()
    assert states() == before
    assert root.post(url, filled(page)).status_code == 303


def test_a_double_click_does_nothing_twice(root: Client, dead: Job) -> None:
    """The same form once more is answered with 409: one decision, one line in each record."""
    url = address("job", "discard", dead.pk)
    form = filled(root.get(url))

    assert root.post(url, form).status_code == 303
    after = states()
    again = root.post(url, form)
    assert again.status_code == 409
    assert "was discarded already" in again.content.decode()
    assert states() == after


def test_a_refused_plan_offers_no_form(root: Client) -> None:
    """A job that is no dead letter says why, and a POST to it is refused."""
    job = JobFactory(succeeded=True)
    url, before = address("job", "replay", job.pk), states()
    page = root.get(url)

    assert "Only a dead letter can be replayed" in page.content.decode()
    assert 'name="state_token"' not in page.content.decode()
    assert root.post(url, {"extra_attempts": "0", **WHY}).status_code in (200, 409)
    assert states() == before


@pytest.mark.parametrize("broken", ["", "x", "of another job", "of another decision", "of another person"])
def test_a_token_counts_for_one_row_one_decision_and_one_person(root: Client, dead: Job, broken: str) -> None:
    """A missing, forged or borrowed token decides nothing: the plan is shown first."""
    url = address("job", "replay", dead.pk)
    other = Client()
    other.force_login(person(is_staff=True, is_superuser=True))
    given = {
        "": "",
        "x": "x",
        "of another job": token(root.get(address("job", "replay", JobFactory(dead_lettered=True).pk))),
        "of another decision": token(root.get(address("job", "discard", dead.pk))),
        "of another person": token(other.get(url)),
    }
    before = states()
    page = root.post(url, {**filled(root.get(url)), "state_token": given[broken]})

    assert page.status_code == 200
    assert "Look at it, then confirm." in page.content.decode()
    assert states() == before


def test_what_was_entered_is_shown_before_it_is_done(root: Client, dead: Job) -> None:
    """Choices that change the plan are confirmed on the plan that they make."""
    url, before = address("job", "replay", dead.pk), states()
    page = root.post(url, filled(root.get(url), extra_attempts="3", start_in="2h"))

    assert page.status_code == 200
    assert "It may fail 3 times more than its policy says." in page.content.decode()
    assert states() == before
    assert root.post(url, filled(page, extra_attempts="3", start_in="2h")).status_code == 303
    dead.refresh_from_db()
    assert (dead.state, dead.extra_attempts) == ("scheduled", 3)


@pytest.mark.parametrize(("name", "value"), [("extra_attempts", "101"), ("start_in", "soon"), ("useful_for", "-1h")])
def test_choices_that_cannot_work_are_refused(root: Client, dead: Job, name: str, value: str) -> None:
    """A number out of range or a span that is none is told, and nothing is decided."""
    url, before = address("job", "replay", dead.pk), states()
    page = root.post(url, filled(root.get(url), **{name: value}))

    assert page.status_code == 200
    assert "errornote" in page.content.decode()
    assert states() == before


def test_the_same_code_needs_a_yes_from_those_who_say_it_was_fixed(root: Client) -> None:
    """Whoever says that the code was fixed must say yes to running the code that failed."""
    job = JobFactory(dead_lettered=True, code_version="7")
    WorkerFactory(code_version="7")
    url = address("job", "replay", job.pk)
    form = filled(root.get(url), reason_code="code_fixed")
    del form["ack_same_code"]

    page = root.post(url, form)
    assert "This reason needs it." in page.content.decode()
    assert root.post(url, {**form, "reason_code": "downstream_back"}).status_code == 303


def test_a_busy_row_is_told(root: Client, dead: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a worker is committing the job, the operator is asked to try again, with what was written kept."""
    url = address("job", "replay", dead.pk)
    form = filled(root.get(url))

    def busy(self: Replay, *args: Any, **kwargs: Any) -> None:
        raise RowBusyError("A worker is committing this job just now; nothing was done. Try again in a moment.")

    monkeypatch.setattr(Replay, "submit", busy)
    page = root.post(url, form)
    assert page.status_code == 409
    assert "Try again in a moment." in page.content.decode()


@pytest.mark.parametrize("method", ["get", "post"])
def test_without_the_permission_nothing_is_shown_or_done(client: Client, dead: Job, method: str) -> None:
    """Somebody who may look but not replay gets 403, and nothing is written."""
    user = person(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client.force_login(user)
    before = states()

    assert getattr(client, method)(address("job", "replay", dead.pk), WHY).status_code == 403
    assert states() == before
    page = client.get(address("job", "change", dead.pk)).content.decode()
    assert "the permission replay_job is missing" in page
    assert "/replay/" not in page


def test_a_permission_that_was_taken_away_counts_under_the_lock(
    root: Client, dead: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision asks for its permissions itself, whatever the view thought."""
    url = address("job", "discard", dead.pk)
    form, before = filled(root.get(url)), states()
    monkeypatch.setattr(Discard, "more_permissions", lambda self: ("shop.nobody_has_this",))
    user = person(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_job", "discard_job"]))
    client = Client()
    client.force_login(user)

    assert client.post(url, form).status_code == 403
    assert states() == before


def test_a_row_that_is_not_there_is_not_found(root: Client) -> None:
    """An id of nothing, and a text that is no id, give 404."""
    for key in ("00000000-0000-7000-8000-000000000000", "nothing"):
        assert root.get(address("job", "replay", key)).status_code == 404
