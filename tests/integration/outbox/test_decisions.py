"""What people decide about deliveries: again, never, or to where they should have gone."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied

from django_jobs.domain.events import Confirmed, Nacked, Timeout
from django_jobs.domain.ids import uuid7
from django_jobs.exceptions import ActionChangedError, ActionRefusedError
from django_jobs.models import Delivery, DeliveryAttempt, Job, OperatorAction
from django_jobs.operate.action import Decision, Done, Operator
from django_jobs.operate.delivery_lookup import DeliveryNotFoundError
from django_jobs.operate.discard_delivery import DiscardDelivery
from django_jobs.operate.redispatch import Redispatch
from django_jobs.operate.reroute import Reroute
from django_jobs.operate.verify import verify
from django_jobs.outbox.losses import take_back_expired
from django_jobs.store.deliveries import ClaimedDelivery, claim_deliveries, mark_published
from tests.crowd import together
from tests.factories_outbox import DeliveryFactory
from tests.integration.outbox.conftest import CRM, PAID, Clockwork, Subscribe, delivered, published
from tests.publishers import Desk

pytestmark = pytest.mark.django_db(transaction=True)

ADA = Operator(actor="ada", owner="shop", reason="the consumer was mended", reason_code="code_fixed")


def decided(decision: Decision, operator: Operator = ADA) -> Done:
    """Look, say yes, and act."""
    return decision.submit(operator, digest=decision.plan().digest)


@pytest.fixture
def dead(crm: Desk, clockwork: Clockwork) -> Delivery:
    """A dead head of an ordering key, with two events behind it."""
    for number in (1, 2, 3):
        published(number, ordering_key="order:1")
    crm.answer = lambda parcel: Nacked("too large")
    for _ in range(6):
        delivered()
        clockwork.forward(minutes=11)
    crm.answer = lambda parcel: Confirmed()
    crm.got.clear()
    return Delivery.objects.get(state="dead_lettered")


def test_redispatch_is_a_delivery_of_its_own(crm: Desk, dead: Delivery) -> None:
    """It goes out past the dead one, which stays and holds its key; both are on record."""
    plan = Redispatch(dead.pk, using="default").plan()
    assert "holds back 2 later events of its ordering key" in " ".join(plan.lines)

    done = decided(Redispatch(dead.pk, using="default"))
    delivered()

    again = Delivery.objects.get(redispatch=1)
    assert (again.state, again.event_id, again.fence) == ("published", dead.event_id, 1)
    assert done.details == {"delivery": str(again.pk), "redispatch": 1}
    assert crm.numbers() == [1]
    assert sorted(Delivery.objects.values_list("state", flat=True)) == [
        "dead_lettered", "published", "waiting", "waiting",
    ]  # fmt: skip
    audit = OperatorAction.objects.get()
    assert (audit.action, audit.delivery_id, audit.event_id, audit.from_state, audit.actor) == (
        "redispatch", dead.pk, dead.event_id, "dead_lettered", "ada",
    )  # fmt: skip


def test_discard_lets_the_key_go_on(crm: Desk, dead: Delivery) -> None:
    """What waited behind a dead delivery is delivered in its order."""
    decided(DiscardDelivery(dead.pk, using="default"))
    assert Delivery.objects.get(key_seq=2).state == "pending", "in the same statement"
    delivered()

    assert crm.numbers() == [2, 3]
    dead.refresh_from_db()
    assert (dead.state, dead.dead_at, dead.dead_reason) == ("discarded", None, "")
    assert OperatorAction.objects.get().action == "discard_delivery"
    with pytest.raises(ActionRefusedError, match="It is discarded"):
        decided(DiscardDelivery(dead.pk, using="default"))


@pytest.fixture
def stuck(crm: Desk, clockwork: Clockwork) -> Delivery:
    """The head of an ordering key that never gets an answer, with two events behind it."""
    for number in (1, 2, 3):
        published(number, ordering_key="order:1")
    crm.answer = lambda parcel: Timeout("no answer") if parcel.event.data["order_id"] == 1 else Confirmed()
    for _ in range(4):
        delivered()
        clockwork.forward(minutes=2)
    crm.got.clear()
    return Delivery.objects.get(state="pending")


def test_event_that_is_never_answered_can_be_given_up(crm: Desk, clockwork: Clockwork, stuck: Delivery) -> None:
    """Time-outs use no budget, so a person ends them: it may have arrived, and what waits behind it goes on."""
    plan = DiscardDelivery(stuck.pk, using="default").plan()
    told = " ".join(plan.lines)
    assert "tried 4 times without success" in told
    assert "may have arrived: 4 of its attempts got no answer" in told
    assert "2 later events of its ordering key may go" in told

    decided(DiscardDelivery(stuck.pk, using="default"))
    assert Delivery.objects.get(key_seq=2).state == "pending", "in the same statement"
    clockwork.forward(minutes=2)
    delivered()

    assert crm.numbers() == [2, 3]
    stuck.refresh_from_db()
    assert (stuck.state, stuck.available_at) == ("discarded", None)
    audit = OperatorAction.objects.get()
    assert (audit.action, audit.from_state, audit.delivery_id) == ("discard_delivery", "pending", stuck.pk)
    assert {item.invariant.name: item.ids for item in verify(using="default").violated} == {}


def test_late_confirmation_is_told_before_it_is_given_up_or_sent_again(crm: Desk, clockwork: Clockwork) -> None:
    """A worker woke when its delivery had been claimed once more, and had sent it: who decides now learns of it."""
    published(1)
    late = claimed_and_taken_back(clockwork)
    claimed_and_taken_back(clockwork)
    before = DiscardDelivery(late.delivery_id, using="default").plan()
    assert "It may have arrived: 2 of its attempts got no answer." in before.lines

    assert mark_published([(late, Confirmed("got it"))], using="default") == set()

    plan = DiscardDelivery(late.delivery_id, using="default").plan()
    assert "It has arrived" in " ".join(plan.lines)
    with pytest.raises(ActionChangedError):
        DiscardDelivery(late.delivery_id, using="default").submit(ADA, digest=before.digest)
    decided(DiscardDelivery(late.delivery_id, using="default"))
    again = Redispatch(late.delivery_id, using="default").plan()
    assert [item.name for item in again.acknowledge] == ["again"], "a consumer may do its work twice"


def claimed_and_taken_back(clockwork: Clockwork) -> ClaimedDelivery:
    """Claim what is due; whoever did so says nothing until the lease is over."""
    lease = timedelta(seconds=20)
    (claimed,) = claim_deliveries(CRM, [uuid.uuid4()], worker_id=uuid7(), lease=lease, using="default")
    clockwork.forward(minutes=1)
    assert take_back_expired(using="default") == 1
    return claimed


def test_late_confirmation_of_the_last_attempt_counts(crm: Desk, clockwork: Clockwork) -> None:
    """Taken back, and claimed by nobody since: it is published, is not sent again, and the next of its key goes."""
    published(1, ordering_key="order:1")
    published(2, ordering_key="order:1")
    late = claimed_and_taken_back(clockwork)

    assert mark_published([(late, Confirmed("got it"))], using="default") == {late.delivery_id}

    delivery = Delivery.objects.get(pk=late.delivery_id)
    assert (delivery.state, delivery.receipt, delivery.fence, delivery.available_at) == ("published", "got it", 1, None)
    assert list(DeliveryAttempt.objects.values_list("outcome", flat=True)) == ["confirmed"]
    delivered()
    assert crm.numbers() == [2], "the first one arrived through the worker that was late"
    assert mark_published([(late, Confirmed("got it"))], using="default") == set()
    assert {item.invariant.name: item.ids for item in verify(using="default").violated} == {}


def test_late_confirmation_leaves_what_somebody_else_tries_by_now(crm: Desk, clockwork: Clockwork) -> None:
    """The newer attempt decides; the older answer is on record with its attempt."""
    published(1)
    late = claimed_and_taken_back(clockwork)
    claim_deliveries(CRM, [uuid.uuid4()], worker_id=uuid7(), lease=timedelta(seconds=20), using="default")

    assert mark_published([(late, Confirmed("got it"))], using="default") == set()

    assert Delivery.objects.get().state == "claimed"
    assert list(DeliveryAttempt.objects.order_by("number").values_list("outcome", flat=True)) == ["confirmed", None]


def test_redispatch_tells_of_attempts_without_an_answer(clockwork: Clockwork, stuck: Delivery) -> None:
    """What was given up after time-outs may have arrived all the same."""
    decided(DiscardDelivery(stuck.pk, using="default"))

    plan = Redispatch(stuck.pk, using="default").plan()

    assert "It may have arrived: 4 of its attempts got no answer." in plan.lines


def test_yes_to_a_stuck_delivery_outlives_its_next_attempt(clockwork: Clockwork, stuck: Delivery) -> None:
    """It is tried again while the person reads, in vain as before: the same is said of it, so the yes still counts."""
    digest = DiscardDelivery(stuck.pk, using="default").plan().digest
    delivered()
    assert Delivery.objects.get(pk=stuck.pk).revision > stuck.revision

    DiscardDelivery(stuck.pk, using="default").submit(ADA, digest=digest)

    assert Delivery.objects.get(pk=stuck.pk).state == "discarded"


@pytest.mark.parametrize(
    ("traits", "why"),
    [
        ({"claimed": True}, "being delivered right now"),
        ({"pending": True}, "not tried yet"),
        ({"waiting": True}, "It is waiting"),
        ({"published": True}, "It is published"),
    ],
)
def test_discard_is_refused_in_plain_words(db: None, traits: dict[str, bool], why: str) -> None:
    """What is under way, was never tried or has ended is left alone, and the answer says why."""
    delivery = DeliveryFactory(**traits)

    with pytest.raises(ActionRefusedError, match=why):
        decided(DiscardDelivery(delivery.pk, using="default"))

    assert Delivery.objects.get().state == delivery.state
    assert OperatorAction.objects.count() == 0


def test_discard_loses_against_a_claim_that_was_first(stuck: Delivery) -> None:
    """A delivery that is claimed between the look and the yes is refused, and goes on."""
    decision = DiscardDelivery(stuck.pk, using="default")
    digest = decision.plan().digest
    (held,) = claim_deliveries(
        CRM, [uuid.uuid4()], worker_id=uuid.uuid4(), lease=timedelta(seconds=20), using="default"
    )
    assert held.delivery_id == stuck.pk

    with pytest.raises((ActionRefusedError, ActionChangedError)):
        decision.submit(ADA, digest=digest)

    assert Delivery.objects.get(pk=stuck.pk).state == "claimed"


def test_arrived_event_is_sent_again_with_a_yes_more(crm: Desk) -> None:
    """A consumer that does not look at ids would work twice: the plan says so."""
    published()
    delivered()
    delivery = Delivery.objects.get()

    plan = Redispatch(delivery.pk, using="default").plan()
    assert [item.name for item in plan.acknowledge] == ["again"]
    decided(Redispatch(delivery.pk, using="default"))

    with pytest.raises(ActionRefusedError, match="on its way there already"):
        decided(Redispatch(delivery.pk, using="default"))
    delivered()
    decided(Redispatch(delivery.pk, using="default"))
    delivered()
    assert sorted(Delivery.objects.values_list("redispatch", "state")) == [
        (0, "published"), (1, "published"), (2, "published"),
    ]  # fmt: skip


def test_two_redispatches_at_once_are_one(crm: Desk, dead: Delivery) -> None:
    """The second one sees that it changed."""
    digest = Redispatch(dead.pk, using="default").plan().digest

    results = together(*[lambda: Redispatch(dead.pk, using="default").submit(ADA, digest=digest)] * 4)

    assert sum(isinstance(result, Done) for result in results) == 1, results
    assert Delivery.objects.filter(redispatch__gt=0).count() == 1
    assert OperatorAction.objects.count() == 1


def test_stale_acknowledgement_is_refused(crm: Desk, dead: Delivery) -> None:
    """Nothing happens when something changed since the operator looked."""
    digest = DiscardDelivery(dead.pk, using="default").plan().digest
    Delivery.objects.filter(pk=dead.pk).update(revision=99)

    with pytest.raises(ActionChangedError):
        DiscardDelivery(dead.pk, using="default").submit(ADA, digest=digest)
    assert OperatorAction.objects.count() == 0


def test_redispatched_event_is_another_job_of_a_subscriber(subscriber: Subscribe) -> None:
    """The number of the redispatch is part of the key: the subscriber runs again."""
    subscriber(lambda event: None)
    event_id = published()
    delivered()
    decided(Redispatch(Delivery.objects.get().pk, using="default"))
    delivered()

    keys = sorted(Job.objects.values_list("payload__key", flat=True))
    assert keys == [str(event_id), f"{event_id}:1"]


def test_reroute_sends_what_went_nowhere(paid: str, subscriber: Subscribe) -> None:
    """Events published before anybody listened are sent once; those that had a route are left alone."""
    early = [published(number) for number in range(3)]
    assert Reroute(PAID, using="default").plan().refused.startswith("Nothing is subscribed")
    subscriber(lambda event: None)
    late = published(9)

    done = decided(Reroute(PAID, using="default"))

    assert done.details == {"deliveries": 3}
    assert set(Delivery.objects.filter(redispatch=1).values_list("event_id", flat=True)) == set(early)
    assert Delivery.objects.get(redispatch=0).event_id == late
    with pytest.raises(ActionRefusedError, match="No event of this type"):
        decided(Reroute(PAID, using="default"))
    delivered()
    assert Job.objects.count() == 4


class Viewer:
    """A user who may look only."""

    def get_username(self) -> str:
        return "eve"

    def has_perm(self, perm: str) -> bool:
        return False


def test_decisions_need_their_permission(crm: Desk, dead: Delivery) -> None:
    """Without it nothing is written."""
    eve = Operator(actor="eve", owner="shop", reason="just because I can", user=Viewer())
    for decision in (Redispatch(dead.pk, using="default"), DiscardDelivery(dead.pk, using="default")):
        with pytest.raises(PermissionDenied, match="redispatch_outboxevent"):
            decided(decision, eve)
    assert (OperatorAction.objects.count(), Delivery.objects.filter(redispatch__gt=0).count()) == (0, 0)


def test_what_does_not_exist_is_said(paid: str) -> None:
    """An id without a row is an error that names it."""
    with pytest.raises(DeliveryNotFoundError, match="There is no delivery"):
        Redispatch(published(), using="default").plan()
