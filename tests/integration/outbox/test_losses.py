"""Deliveries whose process died: claimed alone from then on, dead as poison if they die alone too; never their neighbours."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import transaction

from django_jobs import inbox
from django_jobs.domain.events import Confirmed, Error, Nacked, Parcel, Report
from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import Alone
from django_jobs.models import Delivery, DeliveryAttempt, Worker
from django_jobs.operate.verify import verify
from django_jobs.outbox import answers, dispatcher
from django_jobs.outbox.dispatcher import Dispatcher
from django_jobs.outbox.losses import judge, take_back_expired, take_back_of_dead, take_back_of_silent
from django_jobs.store.deliveries import claim_deliveries
from django_jobs.store.lost_deliveries import deliveries_held_by, take_back_deliveries
from tests.factories import WorkerFactory
from tests.integration.outbox.conftest import CRM, Clockwork, delivered, published
from tests.publishers import Desk
from tests.scenes import Told

pytestmark = pytest.mark.django_db(transaction=True)

POISON = 2


class _Killed(BaseException):
    """The end of the process: nothing is written after it; the fixture ``site`` sees to that."""


class Site:
    """One worker after another child dispatches; a delivery of the poisonous event ends the child."""

    def __init__(self, desk: Desk) -> None:
        self.worker, self.child, self.deaths = uuid7(), 1, 0
        self.desk = desk
        self.answer: Report = Confirmed()
        desk.answer = self._answered
        self.batches: list[list[int]] = []

    def _answered(self, parcel: Parcel) -> Report:
        if parcel.event.data["order_id"] == POISON:
            raise _Killed
        return self.answer

    def serve(self) -> None:
        """Turn until nothing is due, as a supervisor would: what a dead child held is taken back, another one starts."""
        one = self._dispatcher()
        for _ in range(50):
            before = len(self.desk.got)
            try:
                if one.turn() != 0.0:
                    return
            except _Killed:
                self.dies()
                one = self._dispatcher()
            self.batches.append([parcel.event.data["order_id"] for parcel in self.desk.got[before:]])
        raise AssertionError("something is due for ever")

    def dies(self, *, on_purpose: bool = False) -> None:
        """Report the death of the child."""
        how = "its process was ended by SIGKILL"
        assert take_back_of_dead(
            worker_id=self.worker, child=self.child, how=how, on_purpose=on_purpose, using="default"
        )
        self.child += 1
        self.deaths += 1

    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(worker_id=self.worker, child=self.child, using="default")


@pytest.fixture
def site(crm: Desk, clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A worker that dispatches, and a clock that stands still; what ends a process is caught by nobody."""

    def unless_killed(error: BaseException) -> str:
        if isinstance(error, _Killed):
            raise error
        return answers.told(error)

    monkeypatch.setattr(dispatcher, "told", unless_killed)
    return Site(crm)


def states() -> dict[int, str]:
    """Return the state of each delivery by its order id."""
    rows = Delivery.objects.values_list("event__data", "state")
    return {json.loads(data)["order_id"]: state for data, state in rows}


def served_until_quiet(site: Site, clockwork: Clockwork) -> None:
    """Serve, let the rest after losses pass, and serve again."""
    for _ in range(5):
        site.serve()
        clockwork.forward(minutes=20)


def test_event_that_ends_its_process_is_dead_after_three_losses(site: Site, clockwork: Clockwork) -> None:
    """It takes its batch along once; then it goes alone, and the third loss is its conviction, told to its owner."""
    for number in range(5):
        published(number)

    with Told() as told:
        served_until_quiet(site, clockwork)

    assert states() == {number: "dead_lettered" if number == POISON else "published" for number in range(5)}
    assert site.deaths == 3
    dead = Delivery.objects.get(state="dead_lettered")
    assert (dead.dead_reason, dead.lost_count, dead.fence, dead.failed_count) == ("poison", 3, 3, 0)
    attempts = list(DeliveryAttempt.objects.filter(delivery=dead).order_by("number"))
    assert [(row.outcome, row.alone) for row in attempts] == [("lost", ""), ("lost", "worker"), ("lost", "worker")]
    assert "ended by SIGKILL" in attempts[2].detail
    assert "alone on its worker" in attempts[2].detail
    assert dead.last_error == attempts[2].detail
    (alert,) = told.named("owner.alert")
    assert (alert["reason"], alert["delivery_id"]) == ("dead delivery: poison", dead.pk)
    assert {item.invariant.name: item.ids for item in verify(using="default").violated} == {}


def test_neighbours_are_delivered_alone_and_forgotten(site: Site, clockwork: Clockwork) -> None:
    """Each of them arrives by itself in its second attempt, and nothing is held against it."""
    for number in range(5):
        published(number)

    served_until_quiet(site, clockwork)

    innocent = Delivery.objects.filter(state="published")
    assert set(innocent.values_list("fence", "lost_count")) == {(2, 0)}
    alone = DeliveryAttempt.objects.filter(delivery__in=innocent).order_by("number")
    assert set(alone.values_list("number", "outcome", "alone")) == {(1, "lost", ""), (2, "confirmed", "worker")}


def test_later_events_are_not_taken_along(site: Site, clockwork: Clockwork) -> None:
    """What is published after the first death is delivered in batches as ever, and never lost."""
    published(POISON)
    site.serve()
    for number in range(10, 20):
        published(number)

    served_until_quiet(site, clockwork)

    assert set(Delivery.objects.filter(state="published").values_list("fence", flat=True)) == {1}
    assert [sorted(batch) for batch in site.batches if len(batch) > 1] == [list(range(10, 20))]


def test_dead_head_blocks_its_key_and_no_other(site: Site, clockwork: Clockwork) -> None:
    """The rule of dead deliveries holds: its key stands until somebody decides, the others go on."""
    for number in (POISON, 3):
        published(number, ordering_key="order:1")
    for number in (4, 5):
        published(number, ordering_key="order:2")

    served_until_quiet(site, clockwork)

    assert states() == {POISON: "dead_lettered", 3: "waiting", 4: "published", 5: "published"}


def test_lost_only_in_company_is_never_dead(site: Site, clockwork: Clockwork) -> None:
    """Losses in company alone do not convict, however many: it has to be alone first."""
    published(7)
    for _ in range(5):
        _claimed(site, alone=Alone.NO, suspects=Delivery.objects.get().lost_count > 0)
        site.dies()
        clockwork.forward(minutes=20)

    assert Delivery.objects.get().lost_count == 5
    delivered()
    assert (Delivery.objects.get().state, Delivery.objects.get().lost_count) == ("published", 0)


@pytest.mark.parametrize("report", [Nacked("too large", 413), Error("down")])
def test_any_answer_ends_the_suspicion(site: Site, clockwork: Clockwork, report: Report) -> None:
    """A suspect that is refused, or not answered, goes in company again."""
    published(7)
    _claimed(site)
    site.dies()
    site.answer = report

    site.serve()

    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.lost_count) == ("pending", 0)


def test_given_back_unsent_stays_suspected(site: Site) -> None:
    """A release proves nothing."""
    published(7)
    _claimed(site)
    site.dies()
    one = Dispatcher(worker_id=site.worker, child=site.child, using="default")

    one.stopping = lambda: Delivery.objects.filter(state="claimed").exists()
    one.turn()

    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.lost_count) == ("pending", 1)
    assert DeliveryAttempt.objects.get(number=2).outcome == "released"


def test_end_on_purpose_and_a_lease_that_ends_count_nothing(site: Site, clockwork: Clockwork) -> None:
    """A child that its worker ended, and a database that was away while its worker lived, speak against no event."""
    WorkerFactory(id=site.worker)
    published(7)
    _claimed(site)
    site.dies(on_purpose=True)
    assert Delivery.objects.get().lost_count == 0
    _claimed(site)
    clockwork.forward(minutes=5)
    _beats(site, clockwork)

    assert take_back_of_silent(how="its worker is silent", using="default") == 0
    assert take_back_expired(using="default") == 1

    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.lost_count) == ("pending", 0)
    assert set(DeliveryAttempt.objects.values_list("outcome", flat=True)) == {"lost"}


def test_silent_worker_is_judged_by_those_that_may(site: Site, clockwork: Clockwork) -> None:
    """A dispatcher leaves what a silent worker holds to the judges: after an outage everybody looks silent."""
    WorkerFactory(id=site.worker)
    _beats(site, clockwork)
    published(7)
    _claimed(site)
    clockwork.forward(minutes=5)

    other = Dispatcher(worker_id=uuid7(), using="default")
    assert other.turn() is None
    assert take_back_expired(using="default") == 0
    assert Delivery.objects.get().state == "claimed"
    assert take_back_of_silent(how="its worker stopped saying that it lives", using="default") == 1

    assert (Delivery.objects.get().state, Delivery.objects.get().lost_count) == ("pending", 1)
    assert other.turn() == 0.0
    assert Delivery.objects.get().state == "published"


def test_suspect_waits_for_its_place_without_turning_in_circles(site: Site) -> None:
    """While jobs run in the process it is not claimed, others are, and the dispatcher sleeps between two tries."""
    published(7)
    _claimed(site)
    site.dies()
    published(8)

    @contextmanager
    def beside_jobs(suspect: bool) -> Iterator[Alone | None]:
        yield None if suspect else Alone.NO

    one = Dispatcher(worker_id=site.worker, child=site.child, using="default", delivering=beside_jobs)
    assert one.turn() == 0.0
    assert states() == {7: "pending", 8: "published"}
    assert (one.turn() or 0) > 0
    assert not one.is_nothing_left()


def test_other_children_keep_what_they_hold(site: Site) -> None:
    """Only what the dead process held is taken back."""
    published(7)
    _claimed(site)
    site.child += 1

    site.dies()

    assert Delivery.objects.get().state == "claimed"


def test_delivery_that_moved_on_is_left_alone(site: Site) -> None:
    """What somebody else took back, or is ending right now, is not judged a second time."""
    published(7)
    _claimed(site)
    (stale,) = deliveries_held_by(worker_id=site.worker, child=site.child, using="default")
    site.dies()
    _claimed(site, suspects=True)

    with Told() as told:
        assert take_back_deliveries([judge(stale, how="it ended")], using="default") == set()

    assert told.named("delivery.lost") == []
    assert (Delivery.objects.get().state, Delivery.objects.get().lost_count) == ("claimed", 1)


def test_f22_publisher_that_outlasts_its_claim(crm: Desk, clockwork: Clockwork) -> None:
    """F22: a second dispatcher delivers meanwhile. The first one's events come late, under the same ids, and no later
    event of the key came before an earlier one; a consumer with an inbox takes each once."""
    ids = [published(number, ordering_key="order:1") for number in (1, 2, 3)]

    def outlast() -> None:
        crm.before = lambda: None
        clockwork.forward(minutes=1)  # the lease of the first one ends while its publisher works
        delivered()

    crm.before = outlast
    Dispatcher(worker_id=uuid7(), using="default").turn()

    assert crm.numbers() == [1, 2, 3, 1]
    assert [parcel.event.id for parcel in crm.got] == [*ids, ids[0]]
    taken = []
    for parcel in crm.got:
        with transaction.atomic(), inbox.once("books", "shop", str(parcel.event.id)) as first:
            taken.append(first)
    assert taken == [True, True, True, False]
    assert set(Delivery.objects.values_list("state", flat=True)) == {"published"}
    attempts = DeliveryAttempt.objects.filter(delivery__event_id=ids[0]).order_by("number")
    assert list(attempts.values_list("outcome", flat=True)) == ["confirmed", "confirmed"]
    assert {item.invariant.name: item.ids for item in verify(using="default").violated} == {}


def _claimed(site: Site, *, alone: Alone = Alone.NO, suspects: bool = False) -> None:
    claimed = claim_deliveries(
        CRM,
        [uuid.uuid4()],
        worker_id=site.worker,
        child=site.child,
        lease=timedelta(seconds=20),
        suspects=suspects,
        alone=alone,
        using="default",
    )
    assert len(claimed) == 1


def _beats(site: Site, clockwork: Clockwork) -> None:
    Worker.objects.filter(pk=site.worker).update(heartbeat_at=clockwork.now)
