"""Named scenarios of the fault plan that need real workers; each name carries its number."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from django_jobs.domain.deliveries import LONGEST_PAUSE
from django_jobs.faults.arming import VARIABLE, Fault
from django_jobs.models import Attempt, Delivery, DeliveryAttempt, Destination, IdempotencyKey, Job
from django_jobs.operate.prune import prune
from django_jobs.operate.verify import verify
from django_jobs.outbox.destinations import routes
from django_jobs.store.subscriptions import sync
from tests.acceptance.conftest import MakeWorker, wait_until_done
from tests.acceptance.workers import QUICK, Witness, WorkerProcess, wait_for
from tests.concurrency.test_prune_races import finished_long_ago, recorded
from tests.crash.outbox_handlers import REMOTE, kept
from tests.crash.outbox_harness import IMPORTS, destinations_of, published, take_all
from tests.crash.scenario_handlers import after_it, forks, forks_atomic, leaves_thread
from tests.receivers import Answer, Receiver, answer, hang_up, silence

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]

Rows = Callable[[], Counter[int]]
ON_TIME = LONGEST_PAUSE.total_seconds() + 15  # the cap of the breaker, and a loaded machine


def check_invariants() -> None:
    """Nothing stored contradicts itself."""
    assert {item.invariant.name: item.ids for item in verify(using="default").violated} == {}


class Site:
    """Workers that deliver to a receiver, which may be stopped and come back at the same place."""

    def __init__(self, receiver: Receiver, make_worker: MakeWorker) -> None:
        self.receiver = receiver
        self.given = destinations_of(receiver)
        self._make = make_worker

    def worker(self, *arguments: str, **env: str) -> WorkerProcess:
        """Start a worker."""
        given = {"JOBS_IMPORTS": IMPORTS, "JOBS_DESTINATIONS": json.dumps(self.given), "JOBS_DELIVERY_TIMEOUT": "1"}
        return self._make(threads=1, times=QUICK, env={**given, **env}, arguments=arguments).start()

    def come_back(self) -> Receiver:
        """Let a receiver listen where the stopped one did."""
        self.receiver = Receiver(port=self.receiver.port)
        return self.receiver


@pytest.fixture
def site(make_worker: MakeWorker) -> Iterator[Site]:
    """A receiver, and the events of tests.crash routed to it."""
    with Receiver() as receiver:
        found = Site(receiver, make_worker)
        with override_settings(DJANGO_JOBS={**settings.DJANGO_JOBS, "DESTINATIONS": found.given}):
            sync(routes(), using="default")
            yield found
        found.receiver.stop()


def is_delivered() -> bool:
    """Say whether everything is published."""
    return not Delivery.objects.exclude(state="published").exists()


@pytest.mark.long
def test_f22_dispatcher_that_dies_between_publishing_and_marking(site: Site, rows: Rows, tmp_path: Path) -> None:
    """F22: with two dispatchers, what it had sent goes out again under the same id, and each key stays in order."""
    marker = tmp_path / "fired"
    fault = Fault(point="dispatch.after_publish", kind="kill", nth=3, marker=str(marker))
    for number in range(20):
        published(REMOTE, number, key=f"order:{number % 4}")
    for _ in range(2):
        site.worker(**{VARIABLE: fault.to_json()})

    wait_for(is_delivered, seconds=60, what="delivery of everything")

    assert marker.exists(), "a dispatcher died"
    bodies = [json.loads(request.body) for request in site.receiver.requests]
    first = list({body["id"]: (body["partitionkey"], body["sequence"]) for body in bodies}.values())
    for key in {key for key, _ in first}:
        numbers = [number for one, number in first if one == key]
        assert numbers == sorted(numbers), "the order of a key"
    times = take_all(site.receiver.requests)
    lost = DeliveryAttempt.objects.filter(outcome="lost").count()
    assert lost >= 1
    assert 21 <= times.total() <= 20 + lost
    assert rows() == Counter(dict.fromkeys(range(20), 1)), "a consumer with an inbox acts once"
    check_invariants()


class Moody:
    """A receiver's behaviour that can be changed while it answers, and the ids that it has said yes to."""

    def __init__(self, mood: Callable[[Any, int], Answer]) -> None:
        self.mood = mood
        self.confirmed: set[str] = set()

    def __call__(self, receiver: Receiver, connection: Any) -> bool:
        request = receiver.requests[-1]  # one worker, which posts one after another
        chosen = self.mood(json.loads(request.body)["data"]["n"], len(receiver.requests))
        if chosen is YES:
            self.confirmed.add(request.headers["webhook-id"])
        return chosen(receiver, connection)


YES = answer(204)
MOODS: dict[str, Callable[[Any, int], Answer]] = {
    "mid-batch": lambda n, came: YES if came <= 4 else hang_up,
    "slow": lambda n, came: YES if came <= 2 else silence,
    "partial nack": lambda n, came: answer(422) if n % 5 == 0 else YES,
}


@pytest.mark.long
@pytest.mark.parametrize("trouble", ["down at start", *MOODS])
def test_f23_receiver_in_trouble(site: Site, rows: Rows, free_port: int, trouble: str) -> None:
    """F23: nothing counts as published that the receiver has not confirmed; once it is well all arrives in time."""
    if trouble == "down at start":
        site.receiver.stop()
    moody = Moody(MOODS.get(trouble, lambda n, came: YES))
    site.receiver.behaviour = moody
    for number in range(10):
        published(REMOTE, number)
    site.worker("--metrics-port", str(free_port))

    wait_for(lambda: _has_failed(trouble), seconds=60, what="the first trouble")
    _nothing_unconfirmed(moody)
    oldest = wait_for(lambda: _metric(free_port, "outbox_oldest_event_age_seconds"), seconds=40, what="the age")
    assert oldest > 0
    if trouble != "partial nack":
        assert _metric(free_port, "downstream_breaker_open") == 1
    _nothing_unconfirmed(moody)

    moody.mood = lambda n, came: YES
    if trouble == "down at start":
        site.come_back().behaviour = moody
    began = time.monotonic()
    wait_for(is_delivered, seconds=ON_TIME, what="delivery within the cap of the pauses")
    print(f"\n{trouble}: delivered {time.monotonic() - began:.1f} s after the receiver was well")

    _nothing_unconfirmed(moody)
    assert len(moody.confirmed) == 10
    take_all(site.receiver.requests)
    if trouble != "down at start":
        assert rows() == Counter(dict.fromkeys(range(10), 1))
    assert not Destination.objects.filter(failures__gt=0).exists()
    check_invariants()


def _has_failed(trouble: str) -> bool:
    if trouble == "partial nack":
        return DeliveryAttempt.objects.filter(outcome="nacked").count() == 2
    return Destination.objects.filter(failures__gte=2).exists()


def _nothing_unconfirmed(moody: Moody) -> None:
    published_ids = {str(pk) for pk in Delivery.objects.filter(state="published").values_list("event_id", flat=True)}
    assert published_ids <= moody.confirmed


def _metric(port: int, name: str) -> float | None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    found = re.search(rf'^django_jobs_{name}{{[^}}]*"outside"[^}}]*}} (\S+)$', text, re.MULTILINE)
    return float(found[1]) if found else None


@pytest.mark.long
def test_f25_retention_while_workers_run(make_worker: MakeWorker, rows: Rows, vendor: str) -> None:
    """F25: old rows go while jobs are stored, run and finished; nothing open and no key that answers goes with them."""
    env = {"JOBS_IMPORTS": IMPORTS}
    for _ in range(2 if vendor == "postgresql" else 1):
        make_worker(threads=2, env=env).start()
    finished_long_ago(600)
    ids = {}
    for number in range(200):
        ids[number] = kept.enqueue(n=number).id
        if number % 20 == 0:
            prune(using="default", batch=20, max_seconds=0.3)
    wait_until_done(seconds=120)
    while not prune(using="default", batch=50).complete:
        pass

    assert recorded("jobs") == 600
    assert Job.objects.filter(state="succeeded").count() == IdempotencyKey.objects.count() == 200
    assert {number: kept.enqueue(n=number).id for number in ids} == ids, "each key answers with its job"
    assert Attempt.objects.count() == 200
    check_invariants()


IN_ONE_PROCESS = {"JOBS_IMPORTS": "tests.acceptance.handlers,tests.crash.scenario_handlers"}


@pytest.mark.long
def test_f30_fork_and_thread_that_outlive_their_job(make_worker: MakeWorker, rows: Rows, witness: Witness) -> None:
    """F30: neither a copy of the process nor a thread that stayed can act; the jobs and their neighbours are whole."""
    make_worker(threads=1, env=IN_ONE_PROCESS).start()
    forks.enqueue(n=1, returns=False)
    forks.enqueue(n=2, returns=True)
    forks_atomic.enqueue(n=3)
    leaves_thread.enqueue(n=4)
    wait_until_done(seconds=60)
    after_it.enqueue(n=5)
    wait_for(lambda: witness.lines("thread over", n=4), seconds=30, what="the end of the thread")
    wait_until_done(seconds=30)

    assert set(Job.objects.values_list("state", "fence")) == {("succeeded", 1)}
    assert rows() == Counter(dict.fromkeys(range(1, 6), 1))
    assert [line["code"] for n in (1, 2, 3) for line in witness.lines("copy", n=n)] == [0, 70, 70]
    for n in (1, 2):
        assert [line["error"] for line in witness.lines("forked", n=n)] == ["ContextClosedError"] * 3
    assert [line["error"] for line in witness.lines("left", n=4)] == ["ContextClosedError"] * 4
    assert [line["error"] for line in witness.lines("connection", n=4)] == ["DatabaseError"]
    assert witness.lines("call") == [], "no effect was sent"
    check_invariants()
