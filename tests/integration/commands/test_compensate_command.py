"""``manage.py jobs compensate``: the plan, the digest, the act, and what it refuses."""

from __future__ import annotations

import json
import uuid
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_jobs.models import Compensation, Job, OperatorAction, SideEffect
from tests.integration.operate.stories import Story
from tests.integration.operate.taken_back import charged

pytestmark = pytest.mark.django_db

WHO = ("--as", "ada", "--owner", "billing", "--reason", "the customer gave it back")


def compensate(*arguments: object) -> tuple[str, int]:
    """Run the verb here; returns what it printed and its exit code."""
    out = StringIO()
    try:
        call_command("jobs", "compensate", *map(str, arguments), stdout=out)
    except SystemExit as end:
        return out.getvalue(), int(str(end.code))
    return out.getvalue(), 0


def digest_of(*arguments: object) -> str:
    """Look at the plan as a program does."""
    told: dict[str, Any] = json.loads(compensate(*arguments, "--json")[0])
    assert told["outcome"] == "planned"
    return str(told["digest"])


@pytest.fixture
def effect() -> SideEffect:
    """A charge that was applied; its operation is the test project's."""
    told = charged()
    SideEffect.objects.filter(pk=told.row.pk).update(
        operation="payments.charge", request='{"amount":"12.50","currency":"EUR","order_id":7}'
    )
    return told.row


def test_plan_is_printed_and_nothing_done(effect: SideEffect) -> None:
    """Without --ack: what would be taken back with what, and the digest to repeat."""
    text, code = compensate(effect.pk)

    assert code == 0
    assert "payments.charge.compensation" in text
    assert f"--ack {digest_of(effect.pk)}" in text
    assert (Compensation.objects.count(), OperatorAction.objects.count(), Job.objects.count()) == (0, 0, 1)


def test_acknowledged_plan_is_carried_out(effect: SideEffect) -> None:
    """With its digest: a job, a compensation, an audit row; a second time it is refused."""
    digest = digest_of(effect.pk)
    text, code = compensate(effect.pk, *WHO, "--ack", digest, "--json")

    told = json.loads(text)
    assert (code, told["outcome"]) == (0, "done")
    assert Compensation.objects.get().job_id == uuid.UUID(told["job_id"])
    assert OperatorAction.objects.get().reason == "the customer gave it back"
    assert compensate(effect.pk, *WHO, "--ack", digest)[1] == 1
    assert Compensation.objects.count() == 1


def test_changed_plan_is_told(effect: SideEffect) -> None:
    """What was acknowledged is not what is there: exit 4, and nothing is done."""
    digest = digest_of(effect.pk)
    Job.objects.filter(pk=effect.job_id).update(revision=99)

    assert compensate(effect.pk, *WHO, "--ack", digest)[1] == 4
    assert Compensation.objects.count() == 0


def test_by_hand_is_another_plan() -> None:
    """An effect that no code takes back: refused with the mend, and recorded with --by-hand."""
    effect = charged().row
    text, code = compensate(effect.pk)
    assert (code, "--by-hand" in text) == (1, True)

    digest = digest_of(effect.pk, "--by-hand")
    assert compensate(effect.pk, "--by-hand", *WHO, "--ack", digest)[1] == 0
    assert Compensation.objects.get().outcome == "open"


@pytest.mark.parametrize("given", ["order:7", "", "01a22892-f431-76b9-b571-7eea0220b80c"])
def test_effect_that_does_not_exist_is_a_usage_error(given: str) -> None:
    """Exit code 2, with what to give instead."""
    Story()
    with pytest.raises(CommandError) as caught:
        compensate(given)

    assert caught.value.returncode == 2
