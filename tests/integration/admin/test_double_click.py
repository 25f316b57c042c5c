"""Two browsers that decide about one dead letter at the same moment, and a button that is pressed twice."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from django_jobs.models import Job, OperatorAction
from django_jobs.operate.verify import verify
from tests.crowd import together
from tests.databases import Server
from tests.factories import JobFactory
from tests.factories_pages import person
from tests.integration.admin.conftest import address
from tests.integration.admin.test_deciding import filled

pytestmark = pytest.mark.django_db(transaction=True)

TRIES = 10  # of a person who is told that the row is busy


def _pressed(browser: Client, url: str, form: dict[str, str]) -> tuple[int, str]:
    for _ in range(TRIES):
        page = browser.post(url, form)
        text = page.content.decode()
        if "Try again in a moment" not in text:
            break
    return page.status_code, text


def test_f24_two_browsers_and_a_double_click_are_one_replay(server: Server) -> None:
    """F24: of two people and a button pressed twice one request replays; the others are shown who has done it."""
    job = JobFactory(dead_lettered=True)
    url, presses = address("job", "replay", job.pk), []
    for name in ("ada", "bob"):
        browser = Client()
        browser.force_login(person(name=name, is_staff=True, is_superuser=True))
        form = filled(browser.get(url))
        presses += [lambda browser=browser, form=form: _pressed(browser, url, form)] * 2

    answers = together(*presses)

    assert [item for item in answers if isinstance(item, Exception)] == []
    assert sorted(status for status, _ in answers) == [303, 409, 409, 409]
    audit = OperatorAction.objects.get()
    for status, text in answers:
        assert status == 303 or re.search(f"already replayed by {audit.actor}", text)
    found = Job.objects.get()
    assert (found.state, found.generation) == ("queued", 2)
    assert {item.invariant.name: item.ids for item in verify(using="default").violated} == {}
