"""A storage like an object store, with faults between a write and its answer."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from django.core.files.base import ContentFile, File
from django.core.files.storage import Storage

BUCKETS: dict[str, dict[str, bytes]] = {}


class ObjectStorage(Storage):
    """Objects by name, written whole or, with a fault, not quite: ``faults`` are used up one per write."""

    def __init__(self, bucket: str = "tests") -> None:
        self.objects = BUCKETS.setdefault(bucket, {})
        self.faults: list[Callable[[ObjectStorage, str, bytes], None]] = []
        self.writes: list[str] = []
        self.opened: list[str] = []

    def _open(self, name: str, mode: str = "rb") -> File[Any]:
        self.opened.append(name)
        if name not in self.objects:
            raise FileNotFoundError(name)
        return ContentFile(self.objects[name])

    def _save(self, name: str, content: File[Any]) -> str:
        data = BytesIO()
        self.writes.append(name)
        for chunk in content.chunks():
            data.write(chunk)
        if self.faults:
            self.faults.pop(0)(self, name, data.getvalue())
            return name
        self.objects[name] = data.getvalue()
        return name

    def exists(self, name: str) -> bool:
        """Say whether an object stands under the name."""
        return name in self.objects

    def delete(self, name: str) -> None:
        """Forget an object."""
        self.objects.pop(name, None)


def applied_then_lost(storage: ObjectStorage, name: str, data: bytes) -> None:
    """Store the object and lose the answer."""
    storage.objects[name] = data
    raise ConnectionResetError("read timed out")


def lost(storage: ObjectStorage, name: str, data: bytes) -> None:
    """Lose the object on the way."""
    raise ConnectionResetError("broken pipe")


def partial(storage: ObjectStorage, name: str, data: bytes) -> None:
    """Store the beginning, as stores do that are no object stores."""
    storage.objects[name] = data[: len(data) // 2]
    raise ConnectionResetError("broken pipe")


class RefusedError(Exception):
    """What botocore raises: the status is in a mapping."""

    def __init__(self, status: int) -> None:
        super().__init__(f"An error occurred ({status})")
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


def refused(status: int) -> Callable[[ObjectStorage, str, bytes], None]:
    """Refuse the write with a status."""

    def fault(storage: ObjectStorage, name: str, data: bytes) -> None:
        raise RefusedError(status)

    return fault


class RenamingStorage(ObjectStorage):
    """A storage that chooses the name itself."""

    def _save(self, name: str, content: File[Any]) -> str:
        return super()._save(f"v2-{name}", content)


def all_files(folder: Path) -> list[str]:
    """Every file below a folder, also hidden ones."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
