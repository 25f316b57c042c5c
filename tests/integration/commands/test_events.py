"""``manage.py jobs subscriptions|redispatch|discard-delivery|reroute``."""

from __future__ import annotations

import json

import pytest
from django.core.management import CommandError

from django_jobs.models import Delivery, OperatorAction, Subscription
from tests.factories_outbox import DeliveryFactory, OutboxEventFactory, SubscriptionFactory
from tests.integration.commands.test_deciding import WHO, digest_in
from tests.integration.commands.test_jobs_command import jobs
from tests.integration.outbox.conftest import PAID, Subscribe, paid, subscriber  # noqa: F401  fixtures

pytestmark = pytest.mark.django_db


def test_subscriptions_are_listed_and_synced(subscriber: Subscribe) -> None:  # noqa: F811
    """The list says what this code does not declare; a sync ends that and says what it did."""
    subscriber(lambda event: None)
    SubscriptionFactory(destination="old")
    Subscription.objects.filter(destination__startswith="local:").delete()

    text, code = jobs("subscriptions", "list")
    assert code == 0
    assert "not declared in this code" in text
    assert "no row yet" in text

    done, code = jobs("subscriptions", "sync", "--json")
    told = json.loads(done)  # other modules of this process declare routes of their own
    assert {f"{PAID}:1 to local:tests.receipt", "shop.order.paid:1 to local:shop.send_receipt"} <= set(told["added"])
    assert (told["renewed"], told["ended"]) == ([], [f"{PAID}:1 to old"])
    assert "Nothing to change" in jobs("subscriptions", "sync")[0]
    listed = [json.loads(line) for line in jobs("subscriptions", "list", "--json")[0].splitlines()]
    assert {row["destination"]: row["declared"] for row in listed if row["event_type"] == PAID} == {
        "local:tests.receipt": True,
        "old": False,
    }


@pytest.mark.parametrize(
    ("verb", "after"), [("redispatch", ["dead_lettered", "pending"]), ("discard-delivery", ["discarded"])]
)
def test_delivery_is_decided_by_plan_and_digest(verb: str, after: list[str]) -> None:
    """Without --ack nothing happens; with it the decision is carried out and audited."""
    dead = DeliveryFactory(dead_lettered=True)

    plan, code = jobs(verb, dead.pk)
    assert (code, OperatorAction.objects.count()) == (0, 0)
    _, code = jobs(verb, dead.pk, *WHO, "--ack", digest_in(plan))

    assert code == 0
    assert sorted(Delivery.objects.values_list("state", flat=True)) == after
    assert OperatorAction.objects.get().delivery_id == dead.pk


def test_reroute_by_command(subscriber: Subscribe) -> None:  # noqa: F811
    """Events without a route get one."""
    OutboxEventFactory()
    subscriber(lambda event: None)

    plan, _ = jobs("reroute", PAID)
    text, code = jobs("reroute", PAID, *WHO, "--ack", digest_in(plan))

    assert (code, Delivery.objects.get().redispatch) == (0, 1)
    assert "Made 1 delivery, to local:tests.receipt" in text


@pytest.mark.parametrize(
    "arguments",
    [("redispatch", "nonsense"), ("redispatch", "00000000-0000-0000-0000-000000000000"), ("reroute", "a b")],
)
def test_what_does_not_exist_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    """Exit code 2, and a sentence."""
    with pytest.raises(CommandError) as refused:
        jobs(*arguments)
    assert refused.value.returncode == 2
