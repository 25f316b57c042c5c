"""The audit is written once."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from django_jobs import clock
from django_jobs.models import OperatorAction
from django_jobs.store.audit import record

pytestmark = pytest.mark.django_db


def written() -> OperatorAction:
    """Write one row."""
    return record(
        action="discard",
        actor="ada",
        owner="billing",
        reason_code="other",
        reason="paid by hand on Monday",
        ticket="",
        digest="v1:a",
        plan="{}",
        target={},
        using="default",
    )


def test_a_decision_is_kept_with_its_time() -> None:
    """What was recorded is read back as it was given."""
    before = clock.now()

    row = OperatorAction.objects.get(pk=written().pk)

    assert (row.actor, row.owner, row.given_digest, row.plan_digest) == ("ada", "billing", "v1:a", "v1:a")
    assert abs((row.created_at - before).total_seconds()) < 60


def test_a_decision_cannot_be_changed_or_taken_away() -> None:
    """Saving again, deleting, and both by a query are refused, and the row stays."""
    row = written()
    row.reason = "something else"

    for attempt in (
        row.save,
        row.delete,
        lambda: OperatorAction.objects.filter(pk=row.pk).update(reason="x"),
        lambda: OperatorAction.objects.filter(pk=row.pk).delete(),
    ):
        with pytest.raises(TypeError, match="append-only"), transaction.atomic():
            attempt()
    assert OperatorAction.objects.get(pk=row.pk).reason == "paid by hand on Monday"


@pytest.mark.parametrize("change", [{"actor": ""}, {"owner": ""}, {"reason": ""}, {"given_digest": "v1:b"}])
def test_the_database_refuses_a_decision_without_a_name_or_another_digest(change: dict[str, str]) -> None:
    """A row needs somebody, an owner, a reason, and the digest that was acknowledged."""
    values = {
        "action": "discard",
        "actor": "ada",
        "owner": "billing",
        "reason": "because",
        "given_digest": "v1:a",
        "plan_digest": "v1:a",
    }

    with pytest.raises(IntegrityError), transaction.atomic():
        OperatorAction.objects.create(created_at=clock.now(), **{**values, **change})
