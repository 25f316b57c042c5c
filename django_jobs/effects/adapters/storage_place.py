"""One fixed name in a Django storage: what stands there, and putting content there and nowhere else.

``Storage.save`` would rather take another name than fail or overwrite; here that search is switched off. On a file
system the content is written beside its name and moved there whole, so that nobody ever reads half of it.
"""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from django.core.files.base import File
from django.core.files.storage import FileSystemStorage, Storage

from django_jobs.effects.adapters.storage_content import CHUNK, Tick, chunks_of
from django_jobs.exceptions import JobsError


class Standing(StrEnum):
    """What stands under the name, compared with the content that is to stand there."""

    NOTHING = "nothing"
    SAME = "same"
    PART = "part"  # the beginning of the content: a write that did not come to its end
    OTHER = "other"


class NameTakenError(JobsError):
    """Something stands under the name already."""


class OtherNameError(JobsError):
    """The storage put the content under another name than it was given."""


class Source(File):  # type: ignore[type-arg]
    """Content that is read in chunks and tells of each; reading it to its end is how a storage writes it."""

    def __init__(self, file: IO[bytes], name: str, length: int, tick: Tick) -> None:
        super().__init__(file, name)
        self._source = file
        self.size = length
        self._tick = tick

    def chunks(self, chunk_size: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from the beginning."""
        self.seek(0)
        while chunk := self.read(chunk_size or CHUNK):
            yield chunk

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        self._tick()
        return self._source.read(size)

    def close(self) -> None:
        """Stay open: whoever made it reads it again."""


class Place:
    """A name in a storage, for one request of one effect."""

    def __init__(self, storage: Storage, path: str, *, mark: str) -> None:
        self.storage = storage
        self.path = path
        self.reached = False  # whether an error may have come after the name was there
        self._mark = hashlib.sha256(mark.encode()).hexdigest()[:16]

    @property
    def is_local(self) -> bool:
        """Whether the name is one of a file system, where a file can be moved to it whole."""
        return isinstance(self.storage, FileSystemStorage)

    def compare(self, content: Mapping[str, Any], file: IO[bytes] | None, tick: Tick) -> Standing:
        """Say what stands under the name; whether it is the content's beginning is looked at only with its ``file``.

        On a file system no write leaves a beginning under the name: what stands there is somebody else's.
        """
        if not self.storage.exists(self.path):
            return Standing.NOTHING
        digest, length = hashlib.sha256(), 0
        try:
            with self.storage.open(self.path, "rb") as standing:
                for chunk in chunks_of(standing):
                    tick()
                    digest.update(chunk)
                    length += len(chunk)
        except FileNotFoundError:
            return Standing.NOTHING
        if (digest.hexdigest(), length) == (content["sha256"], content["length"]):
            return Standing.SAME
        if file is None or self.is_local or length >= content["length"]:
            return Standing.OTHER
        if _begins(file, length) == digest.hexdigest():
            return Standing.PART
        return Standing.OTHER

    def put(self, source: Source, *, replace: bool, number: int) -> None:
        """Write the content under the name.

        Raises:
            NameTakenError: Something stands there and is not to be replaced.
            OtherNameError: The storage chose another name; what it put there was removed.
        """
        if self.is_local:
            self._move_in(source, replace=replace, number=number)
            return
        self.reached = True
        self._save(self.storage, self.path, source)

    def remove(self) -> None:
        """Remove what stands under the name."""
        self.storage.delete(self.path)

    def _move_in(self, source: Source, *, replace: bool, number: int) -> None:
        beside, target = self._beside(number), Path(self.storage.path(self.path))
        self.storage.delete(beside)
        try:
            self._save(self.storage, beside, source)
            written = Path(self.storage.path(beside))
            _flush(written)
            self.reached = True
            if replace:
                written.replace(target)
            else:
                _link(written, target)
            _flush(target.parent)
        finally:
            with suppress(OSError):
                self.storage.delete(beside)

    def tidy(self, numbers: range) -> None:
        """Remove what earlier requests of the effect that were killed left beside the name; never raises."""
        if not self.is_local:
            return
        for number in numbers:
            with suppress(Exception):
                self.storage.delete(self._beside(number))

    def _beside(self, number: int) -> str:
        folder, _, _ = self.path.rpartition("/")
        name = f".{self._mark}-{number}.part"
        return f"{folder}/{name}" if folder else name

    @staticmethod
    def _save(storage: Storage, path: str, source: Source) -> None:
        one_name_storage = copy.copy(storage)  # the storage itself is shared by all threads
        asked = []

        def only_this_name(name: str, max_length: int | None = None) -> str:  # noqa: ARG001  the storage's own signature
            asked.append(name)
            if len(asked) > 1:
                msg = f"Something stands under {path!r} already."
                raise NameTakenError(msg)
            return path

        one_name_storage.get_available_name = only_this_name  # type: ignore[method-assign]
        name = one_name_storage.save(path, source)
        if name.replace("\\", "/") != path:
            with suppress(Exception):
                storage.delete(name)
            msg = f"The storage put {path!r} under {name!r}: it changes names, so nothing in it can be found again."
            raise OtherNameError(msg)


def _begins(file: IO[bytes], length: int) -> str:
    digest = hashlib.sha256()
    file.seek(0)
    while length > 0 and (chunk := file.read(min(CHUNK, length))):
        digest.update(chunk)
        length -= len(chunk)
    return digest.hexdigest()


def _link(written: Path, target: Path) -> None:
    """Give a written file its name if nothing has it; where links are not known, look first and then move."""
    try:
        target.hardlink_to(written)
    except FileExistsError:
        msg = f"Something stands under {target.name!r} already."
        raise NameTakenError(msg) from None
    except OSError:
        if target.exists():
            msg = f"Something stands under {target.name!r} already."
            raise NameTakenError(msg) from None
        written.replace(target)


def _flush(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk: a receipt must not outlive what it is for."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
