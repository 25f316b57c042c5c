"""What `jobs verify` says, as the demo hears it."""

from __future__ import annotations

import pytest

from django_jobs.models import Job
from testproject.demo.invariants import verify
from testproject.shop.jobs import note_order
from tests.integration.shop.conftest import MakeOrder, RunNext

pytestmark = pytest.mark.django_db(transaction=True)


def test_sound_rows_give_nothing_to_say(make_order: MakeOrder, run_next: RunNext) -> None:
    """After an ordinary job the demo hears nothing."""
    note_order.enqueue(order_id=make_order().pk)
    run_next()

    assert verify() == ""


def test_broken_row_is_named(make_order: MakeOrder, run_next: RunNext) -> None:
    """A job whose number of attempts is not what its attempts say is reported with its id."""
    note_order.enqueue(order_id=make_order().pk)
    job = run_next()
    Job.objects.update(fence=7)

    assert str(job.pk) in verify()
