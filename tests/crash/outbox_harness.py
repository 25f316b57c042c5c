"""Runs deliveries one after the other in real workers, to a real receiver, under the fault of the moment."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from django_jobs import inbox, publish
from django_jobs.faults.arming import VARIABLE, Fault
from django_jobs.models import Delivery, DeliveryAttempt, Job, OutboxEvent
from django_jobs.operate.verify import verify
from tests.acceptance.conftest import MakeWorker, count_rows
from tests.acceptance.handlers import insert_row
from tests.acceptance.workers import QUICK, WorkerProcess, wait_for
from tests.crash.outbox_cells import REMOTE, Course, OutboxCell
from tests.crash.outbox_handlers import LOCAL as HERE
from tests.crash.outbox_handlers import REMOTE as OUTSIDE
from tests.receivers import Receiver, Request

FIRES_WITHIN = 30.0  # seconds
ENDS_WITHIN = 60.0
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
IMPORTS = "tests.acceptance.handlers,tests.crash.outbox_handlers"


def destinations_of(receiver: Receiver, **options: Any) -> dict[str, dict[str, Any]]:
    """Return the settings of one destination, which is the receiver; the events of tests.crash go there."""
    return {
        "outside": {
            "PUBLISHER": "django_jobs.outbox.publishers.webhook.Webhook",
            "EVENTS": [f"{OUTSIDE}:1"],
            "URL": f"http://127.0.0.1:{receiver.port}/in",
            "SECRETS": SECRET,
            "ALLOW_PRIVATE": True,
            "ALLOW_HTTP": True,
            "PORTS": [receiver.port],
            **options,
        }
    }


def published(name: str, n: int, key: str = "") -> Any:
    """Publish one event in a transaction of its own; returns its id."""
    with transaction.atomic():
        return publish(name, {"n": n}, ordering_key=key)


def take_all(requests: list[Request]) -> Counter[str]:
    """Take what came as a consumer with an inbox does, and write its rows; returns how often each event came."""
    for request in requests:
        document = json.loads(request.body)
        assert document["id"] == request.headers["webhook-id"], "the same id in every try"
        with (
            transaction.atomic(),
            inbox.once("crash.outside", document["source"], document["id"], data=document) as first,
        ):
            if first:
                insert_row(document["data"]["n"])
    return Counter(request.headers["webhook-id"] for request in requests)


@dataclass(slots=True, kw_only=True)
class OutboxMatrix:
    """The workers, the receiver and the fault file of one test."""

    folder: Path
    make_worker: MakeWorker
    receiver: Receiver
    workers: int = 1
    ran: list[OutboxCell] = field(default_factory=list)
    left_out: list[OutboxCell] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    _running: list[WorkerProcess] = field(default_factory=list)
    _numbers: Any = field(default_factory=lambda: count(1))

    def run(self, cell: OutboxCell) -> None:
        """Run one cell and note how it went; the next one starts from sound workers."""
        if cell.why_not:
            self.left_out.append(cell)
            return
        self._keep_running()
        began, course = time.monotonic(), None
        try:
            course = self._run(cell, next(self._numbers))
        except AssertionError as error:
            logs = "\n".join(worker.text[-9000:] for worker in self._running)
            self.failed[str(cell)] = "".join(traceback.format_exception(error)[-3:]) + logs
            self._start_anew()
        self.ran.append(cell)
        told = f"ok     {time.monotonic() - began:5.1f} s  {cell} -> {course.name}" if course else f"FAILED {cell}"
        print(f"  {told}", flush=True)

    def report(self, *, least: int) -> None:
        """Print what was run, and fail with what did not go as the table says, or if less was run than is recorded."""
        print(f"{len(self.ran)} cells run, {len(self.left_out)} not applicable, {len(self.failed)} failed")
        for cell in self.left_out:
            print(f"  not applicable: {cell}: {cell.why_not}")
        if self.failed:
            pytest.fail("\n\n".join(f"{name}: {why}" for name, why in self.failed.items()), pytrace=False)
        assert len(self.ran) >= least, f"{len(self.ran)} cells ran, {least} are recorded"

    def _run(self, cell: OutboxCell, n: int) -> Course:
        marker = self.folder / f"fired{n}.json"
        came_before = len(self.receiver.requests)
        self._arm(Fault(point=cell.point, kind=cell.kind, marker=str(marker)))
        name = OUTSIDE if cell.way == REMOTE else HERE
        ids = [published(name, number, key=f"key:{n}") for number in (10 * n, 10 * n + 1)]
        wait_for(marker.exists, seconds=FIRES_WITHIN, what="the fault to fire")
        if cell.kind == "term":
            self._stopped()
        wait_for(lambda: self._is_done(ids), seconds=ENDS_WITHIN, what="the end of both deliveries")
        if cell.kind == "freeze":
            with contextlib.suppress(ProcessLookupError):
                os.kill(json.loads(marker.read_text())["pid"], signal.SIGCONT)
        self._file.unlink()
        course = self._course(cell, ids, came_before)
        self._judge(cell, ids, course, came_before)
        return course

    def _course(self, cell: OutboxCell, ids: list[Any], came_before: int) -> Course:
        """Return the course that the first event took; who was frozen ends its attempt after the other one."""

        def taken() -> Course | None:
            found = Course("", *self._seen(ids, came_before))
            courses = (each for each in cell.allowed if each.outcomes == found.outcomes)
            return next((each for each in courses if cell.way != REMOTE or each.arrivals == found.arrivals), None)

        with contextlib.suppress(AssertionError):
            wait_for(taken, seconds=10 if cell.kind == "freeze" else 0.5)
        found = taken()
        wanted = [(each.outcomes, each.arrivals) for each in cell.allowed]
        assert found, f"expected {wanted}, found {self._seen(ids, came_before)}"
        return found

    def _seen(self, ids: list[Any], came_before: int) -> tuple[tuple[str, ...], int]:
        attempts = DeliveryAttempt.objects.filter(delivery__event_id=ids[0]).order_by("number")
        arrivals = [request.headers["webhook-id"] for request in self.receiver.requests[came_before:]]
        return tuple(map(str, attempts.values_list("outcome", flat=True))), arrivals.count(str(ids[0]))

    def _judge(self, cell: OutboxCell, ids: list[Any], course: Course, came_before: int) -> None:
        first, second = (OutboxEvent.objects.get(pk=pk) for pk in ids)
        assert [first.key_seq, second.key_seq] == [1, 2]
        others = DeliveryAttempt.objects.filter(delivery__event_id=second.pk).order_by("number")
        behind = list(others.values_list("outcome", flat=True))
        if cell.kind == "term":  # who stops gives back what it has not begun
            behind = [outcome for outcome in behind if outcome != "released"]
        assert behind == ["confirmed"], "the event behind it was not touched"
        if cell.way == REMOTE:
            requests = self.receiver.requests[came_before:]
            times = take_all(requests)
            assert times == {str(first.pk): course.arrivals, str(second.pk): 1}
            firsts = list(dict.fromkeys(request.headers["webhook-id"] for request in requests))
            assert firsts == [str(first.pk), str(second.pk)], "the order of the key"
        numbers = [json.loads(event.data)["n"] for event in (first, second)]
        assert [count_rows()[number] for number in numbers] == [1, 1], "the business rows"
        violated = [(item.invariant.name, item.ids) for item in verify(using="default").violated]
        assert violated == []

    def _is_done(self, ids: list[Any]) -> bool:
        self._keep_running()  # a fault that ended a whole worker leaves its work to the next one
        left = Delivery.objects.filter(event_id__in=ids).exclude(state="published")
        return not left.exists() and not Job.objects.exclude(state="succeeded").exists()

    @property
    def _file(self) -> Path:
        return self.folder / "fault.json"

    def _arm(self, fault: Fault) -> None:
        draft = self._file.with_suffix(".new")
        draft.write_text(fault.to_json())
        draft.replace(self._file)

    def _stopped(self) -> None:
        ended = wait_for(
            lambda: next((worker for worker in self._running if not worker.is_running()), None),
            seconds=20,
            what="the worker's end",
        )
        assert ended.wait(seconds=1) == 0, "a stop is a clean one"

    def _keep_running(self) -> None:
        self._running = [worker for worker in self._running if worker.is_running()]
        while len(self._running) < self.workers:
            self._running.append(self._make().start().wait_ready(seconds=120))

    def _make(self) -> WorkerProcess:
        env = {
            "JOBS_IMPORTS": IMPORTS,
            "JOBS_DESTINATIONS": json.dumps(destinations_of(self.receiver)),
            "JOBS_DELIVERY_TIMEOUT": "1",
            VARIABLE: f"@{self._file}",
        }
        return self.make_worker(threads=1, times={**QUICK, "JOBS_GRACE": "3", "JOBS_MAX_CALL": "2"}, env=env)

    def _start_anew(self) -> None:
        self._file.unlink(missing_ok=True)
        for worker in self._running:
            worker.kill_group()
        self._running.clear()
