"""Publishers for tests: one that keeps what it got and answers as it is told, one that writes into a file."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from django_jobs.domain.events import Confirmed, Guarantee, Parcel, Report

GUARANTEE = Guarantee(
    semantics="kept in memory", duplicate_window=None, keeps_order=True, docs="https://example.com/recording"
)
RECORDING = "tests.publishers.RecordingPublisher"
WRITING = "tests.publishers.WritingPublisher"

Answer = Callable[[Parcel], Report]


def confirm(parcel: Parcel) -> Report:
    """Take everything."""
    return Confirmed(receipt=f"got {parcel.number}", status=200)


class Desk:
    """What arrived at one destination of this process, and how it answers."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.got: list[Parcel] = []
        self.answer: Answer = confirm
        self.before: Callable[[], object] = lambda: None  # runs in each batch, before anything arrives

    def numbers(self) -> list[int]:
        """Return the order ids in the order of their arrival."""
        return [parcel.event.data["order_id"] for parcel in self.got]


desks: dict[str, Desk] = defaultdict(Desk)


class RecordingPublisher:
    """Carries to the desk of its name."""

    guarantee = GUARANTEE

    def __init__(self, desk: str = "desk") -> None:
        self.desk = desks[desk]
        self.closed = False

    def publish_batch(self, parcels: Sequence[Parcel], *, seconds: float) -> list[Report]:
        """Keep the parcels and answer each."""
        assert timedelta(seconds=seconds) > timedelta(0)
        self.desk.before()
        reports = []
        for parcel in parcels:
            with self.desk.lock:
                self.desk.got.append(parcel)
            reports.append(self.desk.answer(parcel))
        return reports

    def close(self) -> None:
        """Remember it."""
        self.closed = True


class WritingPublisher:
    """Carries into a file that a kill cannot take back; ends its process where the file ``die`` says so, once.

    An event about the order ``poison`` ends it each time.
    """

    guarantee = GUARANTEE

    def __init__(self, path: str, die: str = "", poison: int | None = None) -> None:
        self.path = Path(path)
        self.die = Path(die) if die else None
        self.poison = poison

    def publish_batch(self, parcels: Sequence[Parcel], *, seconds: float) -> list[Report]:
        """Write one line per parcel, whole or not at all."""
        for parcel in parcels:
            line = {
                "event": str(parcel.event.id),
                "delivery": str(parcel.delivery_id),
                "number": parcel.number,
                "key": parcel.event.ordering_key,
                "seq": parcel.event.key_seq,
                "order_id": parcel.event.data["order_id"],
                "pid": os.getpid(),
            }
            self._write(line)
            if line["order_id"] == self.poison:
                os.kill(os.getpid(), signal.SIGKILL)
        if self.die is not None and self.die.exists():
            self.die.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return [Confirmed() for _ in parcels]

    def _write(self, line: dict[str, object]) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Hold nothing."""
