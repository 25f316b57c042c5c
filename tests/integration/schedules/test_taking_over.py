"""Taking a schedule over from a release that has gone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_jobs import Every
from django_jobs.domain.schedules import Missed
from django_jobs.models import Schedule
from django_jobs.store.schedules import Declared, take_over
from tests.integration.schedules.conftest import Hands

pytestmark = pytest.mark.django_db


def test_tick_that_was_served_meanwhile_is_no_reason(hands: Hands) -> None:
    """Who wants to take over because of one due tick finds another one due: somebody serves the schedule."""
    one = Declared(
        name="shop.report",
        job_type="shop.report",
        rule=Every(timedelta(minutes=1)),
        missed=Missed.COALESCE,
        owner="",
        code_version="",
    )
    assert take_over(one, due=hands.now - timedelta(hours=1), using="default") is False
    row = Schedule.objects.get()
    assert row.next_tick is not None
    assert take_over(one, due=row.next_tick, using="default") is True
