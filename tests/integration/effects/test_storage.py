"""The shipped storage operation: one name, one content, whatever happens between the write and its record."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import storages

from django_jobs import Confirmed, Rejected
from django_jobs.effects.adapters.storage import storage_put, stored_content
from django_jobs.effects.adapters.storage_place import Place
from django_jobs.exceptions import (
    EffectChangedError,
    EffectRejected,
    EffectUncertain,
    TransientError,
)
from tests.integration.effects.factories import (
    Crash,
    MovableClock,
    act,
    after_waiting,
    again,
    effect_row,
    outcomes,
    running,
)
from tests.integration.effects.storages import ObjectStorage, all_files, applied_then_lost, lost, partial, refused
from tests.integration.effects.test_http import a_call

HERE = "tests.integration.effects.storages"
KINDS = ("files", "memory", "objects")
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("places")]


def read(storage: str, path: str = "invoices/7.txt") -> bytes:
    """What stands under a name."""
    with storages[storage].open(path) as file:
        data = file.read()
    return data.encode() if isinstance(data, str) else data


def put(attempt: Any, storage: str, content: Any = b"seven", **options: Any) -> Confirmed:
    """Ask for the effect in an attempt."""
    return act(attempt, storage_put, path="invoices/7.txt", content=content, storage=storage, **options)


@pytest.mark.parametrize("storage", KINDS)
@pytest.mark.parametrize(
    "content", [b"seven\x00\xff", "größe", ContentFile(b"file"), ContentFile("text"), b""], ids=str
)
def test_content_is_put_under_its_name(time: MovableClock, storage: str, content: Any) -> None:
    """Bytes, text and content files arrive as they are, and the receipt names the path."""
    receipt = put(running(), storage, content)

    assert (receipt.provider_ref, receipt.replayed) == ("invoices/7.txt", False)
    raw = content.file.getvalue() if isinstance(content, ContentFile) else content
    assert read(storage) == (raw.encode() if isinstance(raw, str) else raw)


@pytest.mark.parametrize("storage", KINDS)
def test_same_content_is_not_written_again(time: MovableClock, storage: str, places: Path) -> None:
    """It stands there already, whoever wrote it: a receipt, and no write."""
    storages[storage].save("invoices/7.txt", ContentFile(b"seven"))
    before = places / "invoices" / "7.txt"
    stamp = before.stat().st_ino if storage == "files" else None

    assert put(running(), storage).replayed
    assert stamp is None or before.stat().st_ino == stamp
    if storage == "objects":
        assert storages[storage].writes == ["invoices/7.txt"]


@pytest.mark.parametrize("storage", KINDS)
def test_other_content_is_a_refusal_unless_it_may_be_overwritten(
    time: MovableClock, storage: str, places: Path
) -> None:
    """Other content, also longer or beginning alike, stays; overwrite=True replaces it wholly under the same name."""
    for number, standing in enumerate((b"something longer", b"sev", b"")):
        storages[storage].delete("invoices/7.txt")
        storages[storage].save("invoices/7.txt", ContentFile(standing))
        with pytest.raises(EffectRejected, match="Other content"):
            put(running(), storage, key=f"order:{number}")
        assert read(storage) == standing

        put(running(), storage, key=f"again:{number}", overwrite=True)

        assert read(storage) == b"seven"
    if storage == "files":
        assert all_files(places) == ["invoices/7.txt"]


@pytest.mark.parametrize(
    ("fault", "writes"), [(applied_then_lost, 1), (lost, 2), (partial, 2)], ids=["applied", "lost", "partial"]
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_lost_answer_is_found_out_by_comparing(time: MovableClock, fault: Any, writes: int, overwrite: bool) -> None:
    """The next attempt looks: what is there is not written again, what is not there or not whole is."""
    storage = storages["objects"]
    storage.faults.append(fault)
    first = running()
    with pytest.raises(EffectUncertain):
        put(first, "objects", overwrite=overwrite)

    receipt = put(after_waiting(first), "objects", overwrite=overwrite)

    assert (receipt.provider_ref, storage.objects, len(storage.writes)) == (
        "invoices/7.txt",
        {"invoices/7.txt": b"seven"},
        writes,
    )
    assert outcomes() == (["unknown"] if writes == 1 else ["unknown", "confirmed"])


@pytest.mark.parametrize("storage", KINDS)
def test_crash_between_write_and_record_leaves_one_file(
    time: MovableClock, storage: str, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends when the file is there and nobody knows: the next attempt compares and writes nothing."""
    real = Place.put

    def put_and_die(self: Place, *args: Any, **options: Any) -> None:
        real(self, *args, **options)
        raise Crash

    first = running()
    monkeypatch.setattr(Place, "put", put_and_die)
    with pytest.raises(Crash):
        put(first, storage)

    def never(*args: Any, **options: Any) -> None:
        pytest.fail("it was written again")

    monkeypatch.setattr(Place, "put", never)
    receipt = put(again(first), storage)

    assert (receipt.provider_ref, read(storage)) == ("invoices/7.txt", b"seven")
    assert (effect_row().state, effect_row().resolved_by) == ("succeeded", "reconciliation")
    if storage == "files":
        assert all_files(places) == ["invoices/7.txt"]


def test_other_content_after_a_lost_answer_is_decided_once_nothing_can_arrive(time: MovableClock) -> None:
    """Our write is unclear and something else stands there: first a wait, then a refusal, never an endless question."""
    storages["objects"].faults.append(lost)
    first = running()
    with pytest.raises(EffectUncertain):
        put(first, "objects")
    storages["objects"].objects["invoices/7.txt"] = b"else"

    second = after_waiting(first)
    with pytest.raises(EffectUncertain):
        put(second, "objects")
    time.advance(minutes=2)
    third = after_waiting(second)
    with pytest.raises(EffectUncertain):  # it looked before it wrote, and did not write
        put(third, "objects")
    with pytest.raises(EffectRejected):
        put(after_waiting(third), "objects")

    assert (effect_row().state, read("objects")) == ("rejected", b"else")


def test_new_content_under_the_same_business_key_is_another_act(time: MovableClock) -> None:
    """What was put for an order is not replaced under its key: a new version has a key of its own."""
    first = running()
    put(first, "files")

    with pytest.raises(EffectChangedError):
        put(again(first), "files", b"eight", overwrite=True)

    assert read("files") == b"seven"


LARGE = bytes(range(256)) * 5000  # 1.25 MB: more than a request, and more than is kept in memory


@pytest.mark.parametrize("storage", KINDS)
def test_large_content_is_recorded_by_reference(time: MovableClock, storage: str) -> None:
    """The row holds digest, length and place, never the bytes; what arrives is the whole content."""
    storages["default"].save("uploads/7.bin", ContentFile(LARGE))
    content = stored_content("uploads/7.bin")

    put(running(), storage, content)

    assert (content.length, content.sha256) == (len(LARGE), hashlib.sha256(LARGE).hexdigest())
    assert read(storage) == LARGE
    assert len(effect_row().request) < 300
    assert content.sha256 in effect_row().request


def test_source_that_changed_or_went_is_never_put(time: MovableClock) -> None:
    """The reference is to what does not change; if it did, nothing is written and asking again cannot help."""
    storages["default"].save("uploads/7.bin", ContentFile(LARGE))
    content = stored_content("uploads/7.bin")
    storages["default"].delete("uploads/7.bin")
    with pytest.raises(EffectRejected, match="gone"):
        put(running(), "files", content)
    storages["default"].save("uploads/7.bin", ContentFile(LARGE[:-1] + b"?"))

    with pytest.raises(EffectRejected, match="not what the request refers to"):
        put(running(), "files", content, key="order:8")

    assert not storages["files"].exists("invoices/7.txt")
    with pytest.raises(FileNotFoundError):
        stored_content("uploads/8.bin")


def test_storage_that_chooses_its_own_names_is_refused(time: MovableClock) -> None:
    """What was put elsewhere is taken away again: nothing could be compared there."""
    with pytest.raises(EffectRejected, match="changes names"):
        put(running(), "renaming")

    assert storages["renaming"].objects == {}


@pytest.mark.parametrize("status", [400, 403, 404])
def test_storage_that_refuses_is_a_refusal(time: MovableClock, status: int) -> None:
    """A status that proves that nothing was written ends the question."""
    storages["objects"].faults.append(refused(status))

    with pytest.raises(EffectRejected, match="not written"):
        put(running(), "objects")


@pytest.mark.parametrize("status", [403, 404])
def test_refusal_of_a_clients_own_repetition_is_no_refusal(time: MovableClock, status: int) -> None:
    """A client that repeats by itself can be refused for what its first try had written: what stands there decides."""

    def repeated(storage: ObjectStorage, name: str, data: bytes) -> None:
        storage.objects[name] = data
        refused(status)(storage, name, data)

    storages["objects"].faults.append(repeated)

    assert put(running(), "objects").provider_ref == "invoices/7.txt"
    assert (outcomes(), read("objects")) == (["confirmed"], b"seven")


@pytest.mark.parametrize("status", [409, 500, 503])
def test_storage_that_breaks_is_unclear(time: MovableClock, status: int) -> None:
    """A status that proves nothing is found out by comparing."""
    storages["objects"].faults.append(refused(status))

    with pytest.raises(EffectUncertain):
        put(running(), "objects")


def test_file_or_folder_in_the_way_is_a_refusal(time: MovableClock, places: Path) -> None:
    """A folder under the name, or a file where a folder must be, is not for the program to mend."""
    (places / "invoices" / "7.txt").mkdir(parents=True)
    with pytest.raises(EffectRejected):
        put(running(), "files")
    (places / "file").write_text("x")

    with pytest.raises(EffectRejected):
        act(running(), storage_put, key="order:8", path="file/7.txt", content=b"x", storage="files")


def test_full_disk_is_known_not_written(time: MovableClock, places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system nothing has its name before it is whole: an error before that may be tried again."""

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("django_jobs.effects.adapters.storage_place._flush", full)
    with pytest.raises(TransientError, match="No space"):
        put(running(), "files")

    assert (outcomes(), all_files(places)) == (["rejected"], [])


def test_question_that_cannot_be_asked_teaches_nothing(time: MovableClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage that is away when it is compared: not known, asked again later."""
    storages["objects"].faults.append(applied_then_lost)
    first = running()
    with pytest.raises(EffectUncertain):
        put(first, "objects")

    def away(name: str) -> bool:
        raise ConnectionError("away")

    monkeypatch.setattr(storages["objects"], "exists", away)
    second = after_waiting(first)
    with pytest.raises(EffectUncertain):
        put(second, "objects")
    assert isinstance(storage_put.send(a_call(), path="a", content=b"x", storage="objects"), Rejected), (
        "nothing was written before it was looked at"
    )

    monkeypatch.undo()
    time.advance(minutes=1)
    put(after_waiting(second), "objects")
    assert len(storages["objects"].writes) == 1
