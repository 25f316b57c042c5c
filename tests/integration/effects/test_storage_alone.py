"""The storage operation by itself: what it refuses, its deadline, and a process that is killed while it writes."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import FileSystemStorage

from django_jobs import Confirmed, Rejected, Unknown, clock
from django_jobs.domain.canonical import MAX_BYTES
from django_jobs.domain.effects import PastSend, Reconciliation, Verdict
from django_jobs.effects.adapter import resolve
from django_jobs.effects.adapters.storage import StoragePut, storage_put
from django_jobs.effects.adapters.storage_place import Place
from django_jobs.effects.call import DeadlinePassedError
from django_jobs.exceptions import DefinitionError, PayloadError
from tests.integration.effects.storages import all_files
from tests.integration.effects.test_http import NOW, a_call

pytestmark = pytest.mark.usefixtures("places")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/etc/passwd", "absolute"),
        ("C:/x", "absolute"),
        ("../x", "'..'"),
        ("a/../../x", "'..'"),
        ("a//b", "empty"),
        ("a/", "empty"),
        ("./a", "'.'"),
        ("a\\..\\b", "backslash"),
        ("a\x00b", "control"),
        ("a\nb", "control"),
        ("a/ b", "blank"),
        ("", "not empty"),
        (7, "not empty"),
        ("x" * 256, "more than 255"),
        ("\ud800", "control sign"),
    ],
)
def test_path_that_leaves_its_root_or_changes_is_refused_before_anything_is_recorded(path: Any, words: str) -> None:
    """A typed refusal, the same for every storage."""
    with pytest.raises(PayloadError, match=words):
        resolve(storage_put).bind({"path": path, "content": b"x", "storage": "files"})


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        ({"content": b"x", "storage": "nowhere"}, DefinitionError, "no storage"),
        ({"content": b"x", "storage": ["files"]}, DefinitionError, "no storage"),
        ({"content": b"x", "overwrite": "yes"}, PayloadError, "overwrite"),
        ({"content": 7}, PayloadError, "int"),
        ({"content": {"base64": "eA=="}}, PayloadError, "mapping"),
        ({"content": b"x" * MAX_BYTES}, PayloadError, "stored_content"),
        ({}, DefinitionError, "content"),
    ],
)
def test_request_that_cannot_work_is_refused_before_anything_is_recorded(
    request_: dict[str, Any], error: type[Exception], words: str
) -> None:
    """Typed, and with the mend."""
    with pytest.raises(error, match=words):
        resolve(storage_put).bind({"path": "a.txt", **request_})


KILLED = """
import os, signal, sys
import django
os.environ["DJANGO_SETTINGS_MODULE"] = "testproject.settings"
from django.conf import settings
settings.STORAGES = {"files": {
    "BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": sys.argv[1]}}}
django.setup()
from django_jobs.effects.adapters import storage_place
from django_jobs.effects.adapters.storage import storage_put
from tests.integration.effects.test_http import a_call

def die(*args, **options):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[2] == "writing":
    read = storage_place.Source.read
    storage_place.Source.read = lambda self, size=-1: read(self, 3) if self.tell() == 0 else die()
elif sys.argv[2] == "written":
    storage_place._link = die
else:
    from django.core.files.storage import FileSystemStorage
    FileSystemStorage.delete = lambda self, name: die() if "/." in name and self.exists(name) else None
storage_put.send(a_call(), path="invoices/7.txt", content=b"seven", storage="files")
"""


@pytest.mark.parametrize("moment", ["writing", "written", "named"])
def test_killed_writer_leaves_one_whole_file_after_the_next_attempt(places: Path, moment: str) -> None:
    """SIGKILL in the middle, before the name is given, and right after: nobody reads half, and one file remains."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(places), moment], cwd=Path.cwd(), check=False)
    assert done.returncode == -signal.SIGKILL
    assert [path.read_bytes() for path in places.rglob("*.txt")] == ([b"seven"] if moment == "named" else [])
    assert len(all_files(places)) == (2 if moment == "named" else 1)

    request = {"path": "invoices/7.txt", "content": b"seven", "storage": "files"}
    found = storage_put.reconcile(a_call(), **request)
    assert found.verdict is (Verdict.SUCCEEDED if moment == "named" else Verdict.NOT_FOUND)
    if moment != "named":
        assert storage_put.send(a_call(number=2), **request) == Confirmed("invoices/7.txt")
    assert all_files(places) == ["invoices/7.txt"]
    assert (places / "invoices" / "7.txt").read_bytes() == b"seven"


@pytest.mark.parametrize("storage", ["files", "objects"])
def test_deadline_is_looked_at_between_chunks(places: Path, storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first byte: not sent. In the middle: on a file system still known, elsewhere unclear."""
    request = {"path": "a.bin", "content": b"x", "storage": storage}
    with pytest.raises(DeadlinePassedError):
        storage_put.send(a_call(0.0), **request)

    started = clock.boot_seconds()
    real = Place._save

    def slow(store: Any, path: str, source: Any) -> None:
        monkeypatch.setattr(clock, "boot_seconds", lambda: started + 60)
        real(store, path, source)

    monkeypatch.setattr(Place, "_save", staticmethod(slow))
    outcome = storage_put.send(a_call(), **request)

    assert isinstance(outcome, Rejected if storage == "files" else Unknown), outcome
    assert all_files(places) == []


def test_two_writers_at_once_agree(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody puts the name between look and write: the same content is a receipt, other content a refusal."""
    real = Place.put

    def overtaken(content: bytes) -> Any:
        def act_first(self: Place, *args: Any, **options: Any) -> None:
            (places / "a.txt").write_bytes(content)
            real(self, *args, **options)

        return act_first

    for content, expected in ((b"x", Confirmed), (b"y", Rejected)):
        (places / "a.txt").unlink(missing_ok=True)
        monkeypatch.setattr(Place, "put", overtaken(content))
        outcome = storage_put.send(a_call(), path="a.txt", content=b"x", storage="files")
        assert isinstance(outcome, expected)
        assert all_files(places) == ["a.txt"]


def test_file_system_without_links_moves_the_file(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where links are not known the name is looked at once more and the file moved."""

    def no_links(self: Path, target: Path) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    assert repr(storage_put) == "<storage effect storage.put>"
    assert storage_put.send(a_call(), path="a.txt", content=b"x", storage="files") == Confirmed("a.txt")
    assert all_files(places) == ["a.txt"]


def test_own_operation_has_own_terms() -> None:
    """Another instance may be slower and belong to somebody."""
    mine = StoragePut("archive.put", timeout=timedelta(minutes=5), owner="archive")
    assert (mine.name, mine.timeout, mine.owner, mine.guarantees.can_reconcile) == (
        "archive.put", timedelta(minutes=5), "archive", True,
    )  # fmt: skip
    assert isinstance(mine.reconcile(a_call(), path="nothing", content=b"x", storage="files"), Reconciliation)


def test_file_that_goes_while_it_is_compared_is_not_there(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was seen and then removed by somebody: it is written."""
    monkeypatch.setattr(FileSystemStorage, "exists", lambda self, name: True)
    assert storage_put.send(a_call(), path="a.txt", content=b"x", storage="files") == Confirmed("a.txt")


def test_file_of_somebody_else_that_begins_alike_is_never_replaced(places: Path) -> None:
    """On a file system no request leaves half a file: a shorter one is somebody's, also for a repeated request."""
    (places / "a.txt").write_bytes(b"sev")
    request = {"path": "a.txt", "content": b"seven", "storage": "files"}

    call = replace(a_call(number=2), sends=(PastSend(number=1, started_at=NOW, outcome="unknown"),))

    assert storage_put.reconcile(call, **request).verdict is Verdict.FAILED
    outcome = storage_put.send(call, **request)

    assert isinstance(outcome, Rejected)
    assert outcome.permanent
    assert (places / "a.txt").read_bytes() == b"sev"


def test_write_that_was_in_the_way_and_is_gone_may_be_tried_again(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name was taken when it was to be given and free when it was looked at again: known not written."""

    def taken(self: Path, target: Path) -> None:
        raise FileExistsError(17, "File exists")

    monkeypatch.setattr(Path, "hardlink_to", taken)
    outcome = storage_put.send(a_call(), path="a.txt", content=b"x", storage="files")
    assert isinstance(outcome, Rejected)
    assert not outcome.permanent
    assert all_files(places) == []


def test_file_system_without_links_does_not_move_over_another_file(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where links are not known, what was put there meanwhile is seen too."""

    def no_links(self: Path, target: Path) -> None:
        self.write_bytes(b"other")
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    outcome = storage_put.send(a_call(), path="a.txt", content=b"x", storage="files")
    assert isinstance(outcome, Rejected)
    assert (places / "a.txt").read_bytes() == b"other"
