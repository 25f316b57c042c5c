"""Events through real workers: kills between publishing and marking, several dispatchers, many producers."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import transaction
from django.test import override_settings

from django_jobs import clock, publish
from django_jobs.models import Attempt, Delivery, DeliveryAttempt, Job, OutboxEvent, QueueControl
from django_jobs.operate.verify import verify
from django_jobs.outbox.destinations import routes
from django_jobs.store.notify import EVENTS
from django_jobs.store.subscriptions import sync
from tests.acceptance.conftest import MakeWorker
from tests.acceptance.handlers import row
from tests.acceptance.outbox_handlers import HAPPENED
from tests.acceptance.workers import QUICK, pass_time, wait_for
from tests.crowd import together
from tests.publishers import WRITING

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]

IMPORTS = {"JOBS_IMPORTS": "tests.acceptance.outbox_handlers", "JOBS_DELIVERY_TIMEOUT": "1"}
LOCAL = "local:acceptance.on_happened"

Lines = list[dict[str, Any]]


class Receiver:
    """The file of a destination outside of this site."""

    def __init__(self, folder: Path) -> None:
        self.path, self.die = folder / "received.jsonl", folder / "die"
        self.destinations: dict[str, dict[str, Any]] = {
            "crm": {
                "PUBLISHER": WRITING,
                "EVENTS": [f"{HAPPENED}:1"],
                "PATH": str(self.path),
                "DIE": str(self.die),
            }
        }
        self.env = {**IMPORTS, "JOBS_DESTINATIONS": json.dumps(self.destinations)}

    @property
    def lines(self) -> Lines:
        """What arrived, oldest first."""
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []


@pytest.fixture
def receiver(tmp_path: Path, rows: object) -> Iterator[Receiver]:
    """A destination and a subscriber, routed in this process too."""
    found = Receiver(tmp_path)
    with override_settings(DJANGO_JOBS={**settings.DJANGO_JOBS, "DESTINATIONS": found.destinations}):
        sync(routes(), using="default")
        yield found


def is_all_delivered() -> bool:
    """Say whether nothing is left to deliver or to run."""
    unfinished = Delivery.objects.exclude(state="published").exists()
    return not unfinished and not Job.objects.exclude(state="succeeded").exists()


def check_history(lines: Lines) -> None:
    """Everything arrived; what arrived more than once has as many attempts on record; each key is in order."""
    check_invariants()
    events = {str(pk) for pk in OutboxEvent.objects.values_list("pk", flat=True)}
    assert {line["event"] for line in lines} == events
    attempts = Counter(map(str, DeliveryAttempt.objects.values_list("delivery_id", flat=True)))
    times = Counter(line["delivery"] for line in lines)
    assert {pk: many for pk, many in times.items() if many > attempts[pk]} == {}
    assert len({(line["delivery"], line["number"]) for line in lines}) == len(lines), "an attempt is sent once"
    first: dict[str, list[int]] = defaultdict(list)
    for line in lines:
        if line["key"] and line["seq"] not in first[line["key"]]:
            first[line["key"]].append(line["seq"])
    assert {key: seqs for key, seqs in first.items() if seqs != sorted(seqs)} == {}


def check_invariants() -> None:
    """Nothing stored contradicts itself."""
    assert {item.invariant.name: item.ids for item in verify(using="default").violated} == {}


def published(number: int, key: str = "") -> None:
    """Publish one event."""
    with transaction.atomic():
        publish(HAPPENED, {"order_id": number}, ordering_key=key)


def test_dispatcher_killed_between_publishing_and_marking(
    receiver: Receiver, make_worker: MakeWorker, rows: Callable[[], Counter[int]]
) -> None:
    """The next dispatcher delivers again under the same id; history shows the lost attempt; subscribers act once."""
    for number in range(6):
        published(number, key=f"order:{number % 2}")
    receiver.die.touch()
    worker = make_worker(env=receiver.env)
    with worker:
        wait_for(is_all_delivered, seconds=60, what=worker.text)

    check_history(receiver.lines)
    assert not receiver.die.exists()
    assert {line["pid"] for line in receiver.lines} != {receiver.lines[0]["pid"]}
    outcomes = Counter(DeliveryAttempt.objects.filter(delivery__destination="crm").values_list("outcome", flat=True))
    assert outcomes == {"confirmed": 6, "lost": 2}
    assert Counter(line["event"] for line in receiver.lines).most_common(3)[2][1] == 1
    assert rows() == Counter(dict.fromkeys(range(6), 1))


def test_event_that_kills_its_process_is_convicted_and_nothing_beside_it(
    receiver: Receiver, make_worker: MakeWorker, rows: Callable[[], Counter[int]]
) -> None:
    """It dies three times, its neighbours arrive, and jobs that run in the same process lose one attempt at most."""
    receiver.destinations["crm"]["POISON"] = 3
    receiver.env["JOBS_DESTINATIONS"] = json.dumps(receiver.destinations)
    for number in range(6):
        published(number)
    row.enqueue_many([{"n": n} for n in range(100, 160)])
    with make_worker(env=receiver.env, threads=2) as worker:
        wait_for(_is_all_settled, seconds=90, what=worker.text)

    dead = Delivery.objects.get(state="dead_lettered")
    assert (dead.dead_reason, dead.lost_count, dead.fence) == ("poison", 3, 3)
    alone = list(dead.attempts.order_by("number").values_list("outcome", "alone"))
    assert alone == [("lost", ""), ("lost", "worker"), ("lost", "worker")]
    assert set(Delivery.objects.exclude(pk=dead.pk).values_list("state", "lost_count")) == {("published", 0)}
    assert Counter(line["order_id"] for line in receiver.lines)[3] == 3
    assert rows() == Counter(dict.fromkeys([*range(6), *range(100, 160)], 1))
    assert set(Job.objects.values_list("state", "lost_count")) == {("succeeded", 0)}
    lost = Attempt.objects.filter(outcome="lost")
    assert set(lost.values_list("alone", flat=True)) <= {""}, "no suspected job ran beside the delivery"
    check_invariants()


def _is_all_settled() -> bool:
    unsettled = Delivery.objects.exclude(state__in=["published", "dead_lettered"]).exists()
    return not unsettled and not Job.objects.exclude(state="succeeded").exists()


def test_drained_worker_leaves_no_delivery(receiver: Receiver, make_worker: MakeWorker, rows: Any) -> None:
    """With --drain a worker ends when no delivery is due and no job waits, those of subscribers included."""
    for number in range(5):
        published(number, key="order:1")

    worker = make_worker(env=receiver.env, arguments=("--drain",))
    with worker:
        assert worker.wait(seconds=60) == 0, worker.text

    assert is_all_delivered()
    assert rows() == Counter(dict.fromkeys(range(5), 1))
    check_history(receiver.lines)


def test_stopped_worker_holds_no_delivery(receiver: Receiver, make_worker: MakeWorker) -> None:
    """A stop finishes or gives back what was claimed: nothing waits for a lease."""
    for number in range(300):
        published(number)
    worker = make_worker(env=receiver.env)
    with worker:
        wait_for(lambda: receiver.lines, seconds=60, what=worker.text)
        worker.term()
        assert worker.wait(seconds=60) == 0, worker.text

    assert not Delivery.objects.filter(state="claimed").exists()
    assert not DeliveryAttempt.objects.filter(outcome__isnull=True).exists()


@pytest.mark.postgres
def test_sleeping_dispatcher_is_woken_by_a_commit_of_another_process(
    receiver: Receiver, make_worker: MakeWorker
) -> None:
    """It arrives long before the next look: a notification came with the commit."""
    worker = make_worker(env=receiver.env, times={**QUICK, "JOBS_POLL": "90"}).start().wait_ready(seconds=120)
    asleep = QueueControl.objects.filter(queue_name=EVENTS, idle_until__gt=clock.now())
    wait_for(asleep.exists, what=f"an announced sleep: {worker.text}")
    for number in range(3):
        published(number)
        wait_for(lambda: len(receiver.lines) == number + 1, seconds=20, what=worker.text)  # noqa: B023  at once

    assert [line["order_id"] for line in receiver.lines] == [0, 1, 2]


class Producers:
    """Threads that publish, hold their transactions for a while, and roll a fifth of them back."""

    def __init__(self, seed: int, *, many: int, threads: int, holds: float) -> None:
        self.seed, self.many, self.threads, self.holds = seed, many, threads, holds
        self.committed: set[int] = set()

    def run(self) -> None:
        """Publish everything."""
        assert [
            error for error in together(*[lambda n=n: self._produce(n) for n in range(self.threads)]) if error
        ] == []

    def _produce(self, place: int) -> None:
        dice = random.Random(f"{self.seed}:{place}")
        for number in range(place, self.many, self.threads):
            undo = dice.random() < 0.2
            with transaction.atomic():
                publish(
                    HAPPENED, {"order_id": number}, ordering_key=dice.choice(["", *(f"order:{n}" for n in range(20))])
                )
                if dice.random() < 0.3:
                    pass_time(dice.random() * self.holds)
                if undo:
                    transaction.set_rollback(True)
            if not undo:
                self.committed.add(number)


def _many(receiver: Receiver, make_worker: MakeWorker, rows: Any, producers: Producers, kills: int) -> None:
    workers = [make_worker(env=receiver.env, processes=2).start().wait_ready() for _ in range(2)]
    killer = [lambda: _kill(workers, kills)] if kills else []
    together(producers.run, *killer)
    wait_for(is_all_delivered, seconds=200, what="delivery of everything")
    for worker in workers:
        worker.term()
        worker.wait(seconds=60)

    assert rows() == Counter(dict.fromkeys(producers.committed, 1)), "each consumer's effect once"
    assert {line["order_id"] for line in receiver.lines} == producers.committed
    check_history(receiver.lines)


def _kill(workers: list[Any], kills: int) -> None:
    dice = random.Random(52)
    for _ in range(kills):
        pass_time(1.0)
        dice.choice(workers).kill_child()


def test_what_is_delivered_is_what_was_committed(
    receiver: Receiver, make_worker: MakeWorker, rows: Any, vendor: str
) -> None:
    """Producers that roll back, dispatchers that die: the delivered set is the committed set, each key in order."""
    _many(receiver, make_worker, rows, Producers(1, many=100, threads=4, holds=0.05), kills=1)


@pytest.mark.slow
@pytest.mark.postgres
def test_two_thousand_events_of_eight_producers(receiver: Receiver, make_worker: MakeWorker, rows: Any) -> None:
    """The same with 2,000 events, eight producers, random holds and ten kills."""
    _many(receiver, make_worker, rows, Producers(2, many=2000, threads=8, holds=0.2), kills=10)
