"""The page that shows a job's arguments and result unmasked: asked for with a reason, on record, and nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.test import Client

from django_jobs.models import Job, JobPayload, OperatorAction
from tests.factories import JobFactory
from tests.factories_pages import person
from tests.integration.admin.conftest import address
from tests.integration.admin.test_deciding import filled
from tests.integration.admin.test_hostile import HOSTILE

pytestmark = pytest.mark.django_db

SECRET = "hunter2-verysecret"


@pytest.fixture
def job() -> Job:
    """A dead letter with a secret in its arguments and in its result."""
    made = JobFactory(dead_lettered=True)
    JobPayload.objects.filter(pk=made.pk).update(
        arguments=json.dumps({"password": SECRET, "order_id": 7}), result=json.dumps({"token": SECRET})
    )
    return made


def everything(job: Job) -> list[Any]:
    """Return what is stored of the job."""
    return [Job.objects.filter(pk=job.pk).values().get(), JobPayload.objects.filter(pk=job.pk).values().get()]


@pytest.mark.parametrize("name", ["job", "deadletter"])
def test_asking_shows_nothing_yet(root: Client, job: Job, name: str) -> None:
    """The page asks for an owner, a reason and a yes; the secret is on it no more than on the job's page."""
    page = root.get(address(name, "payload", job.pk)).content.decode()

    assert f"Show the arguments, the context and the result of job {job.pk}" in page
    assert 'name="ack_secrets"' in page
    assert SECRET not in page
    assert SECRET not in root.get(address(name, "change", job.pk)).content.decode()
    assert not OperatorAction.objects.exists()


def test_answer_shows_all_and_is_on_record(root: Client, job: Job) -> None:
    """Both are shown as stored; the audit and Django's log know who and why, and nothing of what was shown."""
    url, before = address("job", "payload", job.pk), everything(job)
    answer = root.post(url, filled(root.get(url)))

    page = answer.content.decode()
    assert answer.status_code == 200
    assert page.count(SECRET) == 2
    assert "&quot;order_id&quot;: 7" in page
    assert "no-store" in answer["Cache-Control"]
    action = OperatorAction.objects.get()
    assert (action.action, action.job_id, action.reason) == ("show_payload", job.pk, "paid by hand on Monday")
    assert SECRET not in action.plan
    entry = LogEntry.objects.get()
    assert (entry.object_id, str(action.pk) in entry.change_message) == (str(job.pk), True)
    assert SECRET not in entry.change_message
    assert everything(job) == before
    assert SECRET not in root.get(address("operatoraction", "change", action.pk)).content.decode()


def test_each_look_is_on_record(root: Client, job: Job) -> None:
    """The same form sent again shows it again, and that is a second line of the audit."""
    url = address("job", "payload", job.pk)
    form = filled(root.get(url))

    assert [root.post(url, form).status_code for _ in range(2)] == [200, 200]
    assert OperatorAction.objects.count() == 2


@pytest.mark.parametrize("missing", ["owner", "reason", "reason_code", "ack_secrets", "state_token"])
def test_nothing_is_shown_without_a_name_a_reason_and_a_yes(root: Client, job: Job, missing: str) -> None:
    """What is left out is asked for again, and nothing is shown or recorded."""
    url = address("job", "payload", job.pk)
    form = filled(root.get(url))
    del form[missing]
    page = root.post(url, form)

    assert SECRET not in page.content.decode()
    assert not OperatorAction.objects.exists()


@pytest.mark.parametrize("method", ["get", "post"])
def test_without_the_permission_nothing_is_shown(client: Client, root: Client, job: Job, method: str) -> None:
    """Whoever may replay and discard, but not see secrets, gets 403, and no link."""
    form = filled(root.get(address("job", "payload", job.pk)))
    user = person(is_staff=True)
    user.user_permissions.set(Permission.objects.exclude(codename="view_job_payload"))
    other = Client()
    other.force_login(user)

    assert getattr(other, method)(address("job", "payload", job.pk), form).status_code == 403
    assert not OperatorAction.objects.exists()
    page = other.get(address("job", "change", job.pk)).content.decode()
    assert "the permission view_job_payload is missing" in page
    assert address("job", "payload", job.pk) not in page


def test_permission_alone_does_not_show_a_job(job: Job) -> None:
    """Whoever may not see jobs at all sees no payload either."""
    user = person(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_job_payload"))
    other = Client()
    other.force_login(user)

    assert other.get(address("job", "payload", job.pk)).status_code == 403


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("stored", ["json", "text"])
def test_hostile_text_is_inert(root: Client, job: Job, kind: str, stored: str) -> None:
    """Unmasked is not unescaped: no markup comes alive, no sign hides, nothing is cut."""
    text = HOSTILE[kind]
    JobPayload.objects.filter(pk=job.pk).update(
        arguments=json.dumps({"a": text, "half": "\ud800"}) if stored == "json" else text
    )
    url = address("job", "payload", job.pk)
    page = root.post(url, filled(root.get(url))).content.decode()

    assert "<script>alert" not in page
    assert not re.search(r"<img[^>]*onerror", page)
    assert not set("\u202e\u2066\u200b\u0085\ud800") & set(page)
    assert page.count("&lt;b&gt;") == (5000 if kind == "long" else 0)
    assert not re.search(r"<style|\sstyle=|<script(?![^>]*src=)", page)


def test_what_was_removed_is_not_shown(root: Client, job: Job) -> None:
    """After pruning there is nothing to show, and no form that asks for a reason."""
    Job.objects.filter(pk=job.pk).update(content_removed_at=job.dead_at)
    JobPayload.objects.filter(pk=job.pk).update(arguments="", result=None)
    page = root.get(address("job", "payload", job.pk)).content.decode()

    assert "They were removed at" in page
    assert 'name="state_token"' not in page
    assert "They were removed." in root.get(address("job", "change", job.pk)).content.decode()
