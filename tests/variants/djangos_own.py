"""Runs Django's own tests of its tasks, of the installed version, against the package's backend.

``python -m tests.variants.djangos_own FOLDER`` fetches Django's source into the folder and runs its tests there. What a
test assumes of another backend's inside is skipped, with the reason; everything else has to hold.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
from django.conf import settings

# Test → why it cannot hold here.
_CANNOT = "tells what the immediate backend cannot do"
_ITS_STORE = "changes the dummy backend's list, which is its store"
SKIPPED = {
    "ImmediateBackendTestCase.test_cannot_get_result": _CANNOT,
    "ImmediateBackendTestCase.test_cannot_refresh_result": _CANNOT,
    "ImmediateBackendTestCase.test_cannot_pass_run_after": _CANNOT,
    "ImmediateBackendTransactionTestCase.test_doesnt_wait_until_transaction_commit_by_default": (
        "runs a task inside the caller's transaction; a durable job is part of it, and runs when it has committed"
    ),
    "DummyBackendTestCase.test_clear": _ITS_STORE,
    "DummyBackendTestCase.test_refresh_result": _ITS_STORE,
    "DummyBackendTestCase.test_refresh_result_async": _ITS_STORE,
    "TaskTestCase.test_refresh_result": "calls refresh() in a coroutine, where Django refuses a query; arefresh() asks",
}
_HERE = "tests.variants.task_stand_ins"
_REPLACED = {
    '"django.tasks.backends.dummy.DummyBackend"': f'"{_HERE}.Recording"',
    '"django.tasks.backends.immediate.ImmediateBackend"': f'"{_HERE}.AtOnce"',
    "from django.tasks.backends.dummy import DummyBackend": f"from {_HERE} import Recording as DummyBackend",
    "from django.tasks.backends.immediate import ImmediateBackend": f"from {_HERE} import AtOnce as ImmediateBackend",
    "available_apps = []": "pass",
}


def fetch(folder: Path) -> Path:
    """Download Django's source of the installed version and return the folder of its tests."""
    version = django.get_version()
    command = ["download", "--quiet", "--no-deps", "--no-binary", "django", f"django=={version}", "--dest", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", *command], check=True, timeout=300)
    with tarfile.open(next(folder.glob("[dD]jango-*.tar.gz"))) as archive:
        wanted = [member for member in archive.getmembers() if "/tests/tasks/" in member.name]
        archive.extractall(folder, members=wanted, filter="data")
    return next(folder.glob("[dD]jango-*/tests"))


def adapt(tests: Path) -> None:
    """Put the package's backend where the tests name Django's."""
    for source in (tests / "tasks").glob("test_*.py"):
        text = source.read_text()
        for told, replacement in _REPLACED.items():
            text = text.replace(told, replacement)
        source.write_text(re.sub(r"\bSimpleTestCase\b", "TransactionTestCase", text))  # jobs are in a database


def configure(folder: Path) -> None:
    """Make a project of the package, its tests' app and a database in memory."""
    settings.configure(
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django_jobs", "tasks"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        TASKS={"default": {"BACKEND": "tests.variants.task_stand_ins.Durable", "QUEUES": []}},
        SECRET_KEY="of tests",
        USE_TZ=True,
    )
    django.setup()


def _cases(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from _cases(one)
        elif isinstance(one, unittest.TestCase):
            yield one


def main(folder: str) -> int:
    """Fetch, adapt and run; return how many failed."""
    tests = fetch(Path(folder))
    adapt(tests)
    sys.path.insert(0, str(tests))
    configure(Path(folder))
    from django.test.runner import DiscoverRunner

    class Runner(DiscoverRunner):
        def build_suite(self, *args: Any, **kwargs: Any) -> unittest.TestSuite:
            suite: unittest.TestSuite = super().build_suite(*args, **kwargs)
            _skip(suite)
            return suite

    return int(Runner(verbosity=2, interactive=False).run_tests(["tasks"]))


def _skip(suite: unittest.TestSuite) -> None:
    seen = {f"{type(case).__name__}.{case._testMethodName}": case for case in _cases(suite)}
    if gone := sorted(set(SKIPPED) - set(seen)):
        print("This version of Django has no", ", ".join(gone))
    for name in set(SKIPPED) & set(seen):
        method = name.partition(".")[2]
        setattr(seen[name], method, unittest.skip(SKIPPED[name])(getattr(seen[name], method)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
