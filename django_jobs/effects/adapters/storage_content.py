"""What is to be stored: small content in the request itself, large content by reference to what does not change."""

from __future__ import annotations

import base64
import hashlib
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import IO, Any

from django.core.files.base import ContentFile, File
from django.core.files.storage import InvalidStorageError, Storage, storages

from django_jobs.domain.canonical import MAX_BYTES, canonical
from django_jobs.exceptions import DefinitionError, JobsError, PayloadError

PATH_LIMIT = 255
CHUNK = 64 * 1024
_IN_MEMORY = 1024 * 1024  # a larger copy of referenced content is kept on disk while it is checked
_UNFIT = re.compile(r"[\x00-\x1f\x7f\\]|[\ud800-\udfff]")
_DRIVE = re.compile(r"[A-Za-z]:")
_MEND = "Put it into a storage under a name that is never written again and pass stored_content(path) instead."

Tick = Callable[[], None]


class SourceChangedError(JobsError):
    """The content that a request refers to is gone, or is not what it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredContent:
    """A reference to content that stands in a storage and does not change: where, how long, and its SHA-256."""

    storage: str
    path: str
    sha256: str
    length: int


def stored_content(path: str, *, storage: str = "default") -> StoredContent:
    """Read what stands under ``path`` and return a reference to it, for content too large for a request.

    Raises:
        PayloadError: The path is not a plain relative one.
        DefinitionError: There is no such storage.
        FileNotFoundError: Nothing stands there.
    """
    check_path(path)
    digest, length = hashlib.sha256(), 0
    with the_storage(storage).open(path, "rb") as source:
        for chunk in chunks_of(source):
            digest.update(chunk)
            length += len(chunk)
    return StoredContent(storage=storage, path=path, sha256=digest.hexdigest(), length=length)


def the_storage(alias: Any) -> Storage:
    """Return a storage of the setting STORAGES.

    Raises:
        DefinitionError: There is no such one.
    """
    try:
        return storages[alias]
    except (InvalidStorageError, TypeError) as error:
        msg = f"{alias!r} is no storage of the setting STORAGES: {error}"
        raise DefinitionError(msg) from None


def check_path(path: object) -> str:
    """Return a path that names the same file in every storage, with nothing left for a storage to tidy.

    Raises:
        PayloadError: It is absolute, leaves its root, or has parts or signs that storages change or refuse.
    """
    problem = _problem(path)
    if problem:
        msg = (
            f"A file cannot be stored under {str(path)[:100]!r}: {problem}. Give a relative path like 'invoices/7.pdf'."
        )
        raise PayloadError(msg)
    return str(path)


def _problem(path: object) -> str:
    if not isinstance(path, str) or not path:
        return "a path is a text that is not empty"
    if len(path) > PATH_LIMIT:
        return f"it has {len(path)} signs, more than {PATH_LIMIT}"
    if _UNFIT.search(path):
        return "it has a control sign or a backslash"
    if path.startswith("/") or _DRIVE.match(path):
        return "it is absolute"
    if any(part in {"", ".", ".."} or part != part.strip() for part in path.split("/")):
        return "a part of it is empty, is '.' or '..', or begins or ends with a blank"
    return ""


def encode(content: object) -> dict[str, Any]:
    """Return content as JSON values: its bytes while they fit a request, else where to read them.

    Raises:
        PayloadError: It is of another type, or too large to be stored with the request.
    """
    if isinstance(content, StoredContent):
        check_path(content.path)
        the_storage(content.storage)
        return asdict(content)
    if isinstance(content, Mapping):
        return _checked(content)
    data = _bytes(content)
    encoded = {"base64": base64.b64encode(data).decode("ascii"), **_measured(data)}
    try:
        canonical(encoded, max_bytes=MAX_BYTES - PATH_LIMIT * 4 - 1024)  # leaves room for the rest of the request
    except PayloadError:
        msg = f"The content has {len(data)} bytes, too many to be stored with the request. {_MEND}"
        raise PayloadError(msg) from None
    return encoded


def _measured(data: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "length": len(data)}


def _checked(content: Mapping[str, Any]) -> dict[str, Any]:
    known = {"sha256", "length"} | ({"base64"} if "base64" in content else {"storage", "path"})
    if set(content) != known:
        msg = "The content is a mapping; give bytes, str, a ContentFile or stored_content(path)."
        raise PayloadError(msg)
    return dict(content)


def _bytes(content: object) -> bytes:
    if isinstance(content, ContentFile):
        content.seek(0)
        content = content.read()
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    msg = f"The content is a {type(content).__name__}; give bytes, str, a ContentFile or stored_content(path). {_MEND}"
    raise PayloadError(msg)


def chunks_of(source: File[Any] | IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of an open file; a storage that opens text gives UTF-8."""
    while chunk := source.read(CHUNK):
        yield chunk.encode() if isinstance(chunk, str) else chunk


@contextmanager
def opened(content: Mapping[str, Any], tick: Tick) -> Iterator[IO[bytes]]:
    """Open encoded content for reading; what is referred to was copied and checked before the first byte is given out.

    Raises:
        SourceChangedError: What the reference names is gone or has changed.
    """
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as copy:
        digest, length = hashlib.sha256(), 0
        for chunk in _source(content):
            tick()
            copy.write(chunk)
            digest.update(chunk)
            length += len(chunk)
        if (digest.hexdigest(), length) != (content["sha256"], content["length"]):
            msg = f"The content under {content.get('path', 'the request')!r} is not what the request refers to."
            raise SourceChangedError(msg)
        copy.seek(0)
        yield copy


def _source(content: Mapping[str, Any]) -> Iterator[bytes]:
    if "base64" in content:
        yield base64.b64decode(content["base64"])
        return
    try:
        with the_storage(content["storage"]).open(content["path"], "rb") as source:
            yield from chunks_of(source)
    except FileNotFoundError as error:
        msg = f"The content that the request refers to is gone: {content['path']!r} in {content['storage']!r}."
        raise SourceChangedError(msg) from error
