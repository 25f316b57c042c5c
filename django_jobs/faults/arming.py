"""Which fault is armed, read from the environment of a process, and what makes it fire once."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from django.conf import settings

from django_jobs import faults
from django_jobs.faults import kinds

VARIABLE = "DJANGO_JOBS_FAULT"
_FROM_FILE = "@"
_TEST_RUN = "PYTEST_CURRENT_TEST"  # set by pytest while a test runs
_KIT_SETTINGS = "django_jobs.testing.worker_settings"  # of workers that the test kit starts on a test's database


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: ``kind`` at the ``nth`` time that a process comes to ``point``.

    ``marker`` is a file that it makes when it fires. It never fires again while that is there: not in a process that
    takes the place of the one that it ended, and not in another one that came to the same point.
    """

    point: str
    kind: str
    nth: int = 1
    marker: str

    @classmethod
    def from_json(cls, text: str) -> Fault:
        """Read one fault.

        Raises:
            ValueError: It is no JSON object with point, kind, marker and perhaps nth, or names what does not exist.
        """
        try:
            given = json.loads(text)
            fault = cls(**given)
        except (TypeError, ValueError) as error:
            msg = f"{VARIABLE} takes a JSON object with point, kind, marker and perhaps nth: {error}."
            raise ValueError(msg) from None
        faults.checked(fault.point)
        known = {**kinds.KINDS, **kinds.UNTIL_OPENED}
        if fault.kind not in known:
            msg = f"There is no kind of fault {fault.kind!r}; there are {', '.join(sorted(known))}."
            raise ValueError(msg)
        if not isinstance(fault.nth, int) or fault.nth < 1 or not fault.marker:
            msg = f"A fault fires at the nth time, from 1 on, and needs a marker: {given}."
            raise ValueError(msg)
        return fault

    def to_json(self) -> str:
        """Write what :meth:`from_json` reads."""
        return json.dumps(asdict(self))

    def fire(self, using: str) -> None:
        """Make the marker and do it, unless somebody did before."""
        told = {**asdict(self), "pid": os.getpid(), "thread": threading.current_thread().name, "at": time.monotonic()}
        path = Path(self.marker)
        draft = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
        draft.write_text(json.dumps(told))
        try:
            os.link(draft, path)  # whole at once, and only for the first
        except FileExistsError:
            return
        finally:
            draft.unlink()
        if self.kind in kinds.UNTIL_OPENED:
            kinds.UNTIL_OPENED[self.kind](self.door)
        else:
            kinds.KINDS[self.kind](using)

    @property
    def door(self) -> Path:
        """The named pipe that a fault of some kinds makes, and that ends it when somebody opens it for writing."""
        return Path(f"{self.marker}.door")


class Counted:
    """Acts once, when its point is reached for the ``nth`` time."""

    def __init__(self, point: str, action: Callable[[str], object], *, nth: int = 1) -> None:
        self.fired = False
        self._point, self._action, self._left = point, action, nth
        self._lock = threading.Lock()

    def __call__(self, point: str, using: str) -> None:
        if faults.checked(point) != self._point:
            return
        with self._lock:
            self._left -= 1
            now = self._left == 0
            self.fired = self.fired or now
        if now:
            self._action(using)


class Followed:
    """The fault that a file names now; whoever writes the file arms one fault after the other in running processes."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._text = ""
        self._counted: Counted | None = None
        self._lock = threading.Lock()

    def __call__(self, point: str, using: str) -> None:
        with self._lock:
            counted = self._read()
        if counted is not None:
            counted(point, using)

    def _read(self) -> Counted | None:
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            text = ""
        if text != self._text:
            self._text = text
            self._counted = counted_of(Fault.from_json(text)) if text else None
        return self._counted


def counted_of(fault: Fault) -> Counted:
    """Return what makes a fault fire in this process."""
    return Counted(fault.point, fault.fire, nth=fault.nth)


def arm_from_environment(*, supervisor: int, environment: Mapping[str, str] = os.environ) -> None:
    """Arm what ``DJANGO_JOBS_FAULT`` names: a fault as JSON, or ``@path`` of a file with one that may change.

    Raises:
        ValueError: It cannot be read, or it must not be armed here, see :func:`refusal`.
    """
    text = environment.get(VARIABLE, "")
    if not text:
        return
    if why := refusal(environment):
        raise ValueError(why)
    kinds.supervisor = supervisor
    if text.startswith(_FROM_FILE):
        faults.arm(Followed(text.removeprefix(_FROM_FILE)))
    else:
        faults.arm(counted_of(Fault.from_json(text)))


def refusal(environment: Mapping[str, str] = os.environ) -> str:
    """Say in plain English why the fault in the environment must not be armed here; empty if it may, or none is."""
    if not environment.get(VARIABLE) or settings.DEBUG or is_test_run(environment):
        return ""
    return (
        f"{VARIABLE} is set, which makes this process kill itself or break its connections on purpose. That is allowed "
        "with DEBUG and in test runs only."
    )


def is_test_run(environment: Mapping[str, str] = os.environ) -> bool:
    """Say whether pytest or the test kit started this process, or one that started it, or Django's tests run in it.

    The kit's workers are known by their settings module. Nobody sets that by accident, and it names a test's database.
    """
    if _TEST_RUN in environment or getattr(settings, "SETTINGS_MODULE", None) == _KIT_SETTINGS:
        return True
    tests = sys.modules.get("django.test.utils")  # imported by tests, not here: it brings a test client along
    return tests is not None and hasattr(tests._TestState, "saved_data")  # noqa: SLF001
