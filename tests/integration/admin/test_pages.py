"""Every list and every page of a row answers, read-only, with what is stored."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.test import Client

from django_jobs import clock
from django_jobs.admin.pages import PAGES
from django_jobs.models import DeadLetter, Job
from django_jobs.operate.wording import instant
from tests.factories import JobFactory
from tests.factories_pages import one_of_each
from tests.integration.admin.conftest import address

pytestmark = pytest.mark.django_db

NAMES = [model._meta.model_name for model in PAGES]


def test_each_model_has_its_page_on_the_default_site() -> None:
    """What has a page is registered with Django's own site."""
    assert {model for model in PAGES if not admin.site.is_registered(model)} == set()


@pytest.mark.parametrize("name", NAMES)
def test_list_and_page_of_each_model_answer(root: Client, name: str) -> None:
    """A list names its row and links the row's page, which shows it, and its history answers."""
    rows = {model._meta.model_name: row for model, row in one_of_each().items()}
    row = rows.get(name) or rows["job"]
    listed = root.get(address(name, "changelist"), {"list": "1"} if name == "deadletter" else {})

    assert listed.status_code == 200
    assert f"/{row.pk}/change/" in listed.content.decode()
    assert root.get(address(name, "change", row.pk)).status_code == 200
    assert root.get(address(name, "history", row.pk)).status_code == 200


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_added_changed_or_deleted(root: Client, name: str) -> None:
    """Not even a superuser may add, change or delete a row by hand."""
    rows = {model._meta.model_name: row for model, row in one_of_each().items()}
    row = rows.get(name) or rows["job"]

    assert root.get(address(name, "add")).status_code == 403
    assert root.post(address(name, "change", row.pk), {}).status_code == 403
    assert root.get(address(name, "delete", row.pk)).status_code == 403
    assert root.post(address(name, "delete", row.pk), {"post": "yes"}).status_code == 403


def test_waiting_job_says_when_it_is_due(root: Client) -> None:
    """The list has the start of a job for later, and the enqueue of one without."""
    at_once, later = JobFactory(queued=True), JobFactory(scheduled=True)
    assert later.available_at > clock.now()
    page = root.get(address("job", "changelist")).content.decode()
    for job in (at_once, later):
        assert f'<time datetime="{instant(job.available_at)}"' in page


def test_dead_letters_are_shown_by_error_first(root: Client) -> None:
    """The landing page has one line per error, with counts that lead to the list."""
    job = one_of_each()[Job]
    page = root.get(address("deadletter", "changelist")).content.decode()

    assert "All 1 dead letter without a decision." in page
    assert "ValueError" in page
    assert f"error={job.error_fingerprint.replace(':', '%3A')}" in page
    assert DeadLetter.objects.get().pk == job.pk
