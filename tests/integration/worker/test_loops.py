"""Every loop of a worker outlives errors: it runs again after fifty failures in a row, whatever they are."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import OperationalError, connections

from django_jobs import clock, telemetry
from django_jobs.worker import claiming, clearing, heart, sweep
from django_jobs.worker import failures as failing
from django_jobs.worker.child import Child
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.heart import Heart
from django_jobs.worker.link import Order, Word
from django_jobs.worker.shutdown import Ending
from django_jobs.worker.watch import watch
from tests.integration.worker.test_heart import heart as new_heart

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

FIFTY = 50
ERRORS = [OperationalError("the server is gone"), IndexError("nobody expected this")]


class Broken:
    """Stands for a function: raises fifty times, database errors and others in turn, then calls it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.calls = 0
        self.again = threading.Event()
        self._function = function

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls <= FIFTY:
            raise ERRORS[self.calls % 2]
        self.again.set()
        return self._function(*args, **options)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine's clock that runs on by four seconds with each look, so that every pause is over at once."""
    now = clock.boot_seconds()
    ticks = iter(range(10**9))
    monkeypatch.setattr(clock, "boot_seconds", lambda: now + 4.0 * next(ticks))
    monkeypatch.setattr(heart, "TICK", 0.0)
    monkeypatch.setattr(heart, "EXPIRE_EVERY", 0.0)


@pytest.fixture
def beating(hasty: None) -> Iterator[Heart]:
    """A heart whose thread the test starts."""
    made = new_heart()
    yield made
    if made.is_alive:
        assert made.finish(seconds=20)


@pytest.mark.parametrize(
    ("name", "loop"), [("beat", "beat_or_register"), ("register", "beat_or_register"), ("abandoned", "judge"),
                       ("expire", "expire"), ("held_by", "deaths")]
)  # fmt: skip
def test_r24_heart_outlives_fifty_failures_of(
    name: str, loop: str, beating: Heart, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beats, judgements, expiry and taking back from the dead go on, in the same thread; each failure is counted."""
    place = sweep if name == "abandoned" else heart
    broken = Broken(getattr(place, name))
    monkeypatch.setattr(place, name, broken)
    if name == "abandoned":  # it judges only between good beats, which this clock does not grant
        monkeypatch.setattr(Heart, "_may_go_on", lambda _: True)
    counted: Counter[object] = Counter()

    def count(event: str, fields: dict[str, object]) -> None:
        if event == "loop.failed" and fields["loop"] == loop:
            counted[fields["error"]] += 1

    end = telemetry.subscribe(count)

    beating.start()
    beating.report_death(child=1, status=-9)

    assert broken.again.wait(timeout=120), broken.calls
    end()
    assert beating.is_alive
    assert counted == {"OperationalError": FIFTY / 2, "IndexError": FIFTY / 2}


def child() -> Child:
    """A child without a supervisor."""
    config = WorkerConfig(
        worker_id=str(uuid.uuid4()), name="w", database="default", queues=(), threads=1, processes=1, grace=1, poll=1
    )
    return Child(config)


@pytest.mark.parametrize(
    "name", ["claim", "oldest_suspect", "until_due", "paused", "set_aside", "given", "known_queues", "end_overdue"]
)
def test_r24_child_outlives_fifty_failures_of(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims, looks for suspects, promotion, settling doubts, finding queues and ending overdue code: all go on."""
    monkeypatch.setattr(watch, "_hurried", False)  # a stop hurries the whole process: put back after the test
    serving = child()
    place = {"end_overdue": Ending, **dict.fromkeys(("until_due", "paused", "set_aside"), clearing)}.get(name, claiming)
    broken = Broken(getattr(place, name))
    monkeypatch.setattr(place, name, lambda *args, **options: broken(*args, **options))
    if name == "given":
        serving.claimer._doubtful[uuid.uuid4()] = float("inf")
    for look in ("LOOK_FOR_SUSPECTS_EVERY", "LOOK_FOR_DOUBTFUL_EVERY"):
        monkeypatch.setattr(claiming, look, 0.0)
    monkeypatch.setattr(clearing.Clearing, "_is_due", lambda *_: True)
    serving.claimer.config = serving.idle._config = serving.config = WorkerConfig(
        **{**_values(serving.config), "poll": 0.0}
    )
    monkeypatch.setattr(Child, "_pause", lambda _: 0.0)
    before, turns = telemetry.counts["loop.failed"], []
    serving.report = turns.append
    thread = threading.Thread(target=_run, args=(serving,))
    thread.start()
    try:
        went_on = broken.again.wait(timeout=120)
    finally:
        serving.stop(Order.DRAIN)
        thread.join(timeout=30)

    assert went_on, broken.calls
    assert not thread.is_alive()
    assert telemetry.counts["loop.failed"] - before >= FIFTY
    assert Word.LOOKED in turns or name == "end_overdue"


def _values(config: WorkerConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in WorkerConfig.__dataclass_fields__}


def _run(serving: Child) -> None:
    try:
        serving.run()
    finally:
        connections.close_all()


def test_r24_same_traceback_is_logged_once_in_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A loop that fails in each round does not fill the disk; the next line says how many were left out."""
    now = 1000.0
    monkeypatch.setattr(clock, "boot_seconds", lambda: now)
    noted = failing.Failures()
    for _ in range(100):
        noted.note("judge", IndexError("no"), using="default")
        noted.note("expire", IndexError("no"), using="default")
    now += failing.TELL_EVERY
    noted.note("judge", IndexError("no"), using="default")

    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert lines[2] == "The worker's own work (judge) failed, 99 times more since the last such line; trying again"
