"""Putting content under a fixed name of a Django storage as an operation.

The name and the bytes are fixed, so repeating the request changes nothing; and what stands under the name can be
compared with what should, so after a crash the next attempt looks before it writes.
"""

from __future__ import annotations

from datetime import timedelta
from typing import IO, Any

from django.core.exceptions import SuspiciousOperation

from django_jobs.domain import downstream
from django_jobs.domain.effects import (
    Confirmed,
    Dedupe,
    Guarantees,
    Outcome,
    Reconciliation,
    Rejected,
    Unknown,
    Verdict,
)
from django_jobs.domain.retry import RetryPolicy
from django_jobs.effects.adapter import DEFAULT_TIMEOUT
from django_jobs.effects.adapters.storage_content import (
    SourceChangedError,
    StoredContent,
    check_path,
    encode,
    opened,
    stored_content,
    the_storage,
)
from django_jobs.effects.adapters.storage_place import NameTakenError, OtherNameError, Place, Source, Standing
from django_jobs.effects.call import DeadlinePassedError, EffectCall
from django_jobs.exceptions import DefinitionError, PayloadError

__all__ = ["StoragePut", "StoredContent", "storage_put", "stored_content"]


class StoragePut:
    """An operation that puts content under a fixed name.

    Its request: ``path`` (relative), ``content`` (bytes, str, a ContentFile or :func:`stored_content`), ``storage`` (a
    name of the setting STORAGES) and ``overwrite``. Other content under the name is a refusal (``EffectRejected``)
    unless ``overwrite=True`` says that the last writer wins. The receipt's ``provider_ref`` is the path.

    Args:
        name: What it is called.
        timeout: The longest one request may take. No storage can be interrupted; the clock is looked at between chunks.
        settle: How long after its deadline a write may still reach the storage.
        owner: Who is told when a human must look.
        retry: Delays between questions and requests; default: the job's.
    """

    def __init__(
        self,
        name: str = "storage.put",
        *,
        timeout: timedelta = DEFAULT_TIMEOUT,
        settle: timedelta = timedelta(seconds=30),
        owner: str = "",
        retry: RetryPolicy | None = None,
    ) -> None:
        self.name = name
        self.timeout = timeout
        self.owner = owner
        self.retry = retry
        self.guarantees = Guarantees(
            dedupe=Dedupe.NATURAL,
            can_reconcile=True,
            settle=settle,
            docs="https://docs.djangoproject.com/en/stable/ref/files/storage/",
        )

    def __repr__(self) -> str:
        return f"<storage effect {self.name}>"

    def prepare(
        self, *, path: object, content: object, storage: object = "default", overwrite: object = False
    ) -> dict[str, Any]:
        """Return the request as it is recorded: content that is too large for it is given as a reference.

        Raises:
            PayloadError: The path or the content cannot be stored.
            DefinitionError: There is no such storage.
        """
        if not isinstance(overwrite, bool):
            msg = f"overwrite is {overwrite!r}; give True or False."
            raise PayloadError(msg)
        the_storage(storage)
        return {"path": check_path(path), "content": encode(content), "storage": storage, "overwrite": overwrite}

    def send(
        self, call: EffectCall, *, path: str, content: Any, storage: str = "default", overwrite: bool = False
    ) -> Outcome:
        """Write the content unless it stands there, and say what is known then."""
        try:
            content = self.prepare(path=path, content=content, storage=storage, overwrite=overwrite)["content"]
            place = Place(the_storage(storage), path, mark=call.key)
            with opened(content, call.check_deadline) as file:
                return _Put(call, place, content, file, overwrite=overwrite).outcome()
        except (SourceChangedError, PayloadError, DefinitionError) as error:
            return Rejected(f"not written: {error}")
        except DeadlinePassedError:
            raise
        except Exception as error:  # noqa: BLE001  of reading: what breaks while writing is judged by _Put
            return _unwritten(error)

    def reconcile(
        self, call: EffectCall, *, path: str, content: Any, storage: str = "default", overwrite: bool = False
    ) -> Reconciliation:
        """Compare what stands under the name with what should."""
        encoded = encode(content)
        place = Place(the_storage(storage), path, mark=call.key)
        standing = place.compare(encoded, None, call.check_deadline)
        if standing is Standing.OTHER and not overwrite and call.sends:
            with opened(encoded, call.check_deadline) as file:
                standing = place.compare(encoded, file, call.check_deadline)
        evidence = {"found": str(standing), "sha256": encoded["sha256"], "length": encoded["length"]}
        if standing is Standing.SAME:
            place.tidy(range(1, call.send_number + 1))
            return Reconciliation(Verdict.SUCCEEDED, provider_ref=path, evidence=evidence)
        if standing is Standing.OTHER and not overwrite:
            return Reconciliation(Verdict.FAILED, evidence=evidence)
        return Reconciliation(Verdict.NOT_FOUND, evidence=evidence)


class _Put:
    """One request: look, write, and judge what went wrong by whether a byte had been given to the storage."""

    def __init__(self, call: EffectCall, place: Place, content: Any, file: IO[bytes], *, overwrite: bool) -> None:
        self.call = call
        self.place = place
        self.content = content
        self.file = file
        self.overwrite = overwrite

    def outcome(self) -> Outcome:
        """Put the content under the name and return what that proves."""
        self.place.tidy(range(1, self.call.send_number))
        standing = self._standing()
        if standing is Standing.SAME:
            return self._confirmed(replayed=True)
        if standing is Standing.OTHER and not self.overwrite:
            return self._refused()
        self.call.check_deadline()
        try:
            self._write(standing)
        except NameTakenError:
            return self._taken()
        except OtherNameError as error:
            return Rejected(str(error))
        except Exception as error:  # noqa: BLE001  whatever a storage raises, the content may stand there
            return self._broken(error)
        return self._confirmed(replayed=False)

    def _taken(self) -> Outcome:
        """Somebody was faster: what did they put there?"""
        found = self._standing()
        if found is Standing.SAME:
            return self._confirmed(replayed=True)
        if found is Standing.OTHER:
            return self._refused()
        return Rejected("not written: another write was in the way", permanent=False, key_is_burnt=False)

    def _standing(self) -> Standing:
        """Compare; the beginning of the content counts as the remains of an earlier request, if there was one."""
        found = self.place.compare(self.content, self.file, self.call.check_deadline)
        return Standing.OTHER if found is Standing.PART and self.call.send_number == 1 else found

    def _write(self, standing: Standing) -> None:
        replace = standing is not Standing.NOTHING
        number = self.call.send_number
        self.place.put(self._source(), replace=replace or self.overwrite, number=number)
        if not replace or self.place.is_local:
            return
        if self.place.compare(self.content, None, self._tick) is not Standing.SAME:
            # Some storages write over what stood there without cutting off its end.
            self.place.remove()
            self.place.put(self._source(), replace=False, number=number)

    def _stands(self) -> bool:
        try:
            return self.place.compare(self.content, None, self._tick) is Standing.SAME
        except Exception:  # noqa: BLE001  a storage that refuses writes may refuse reads
            return False

    def _source(self) -> Source:
        self.file.seek(0)
        return Source(self.file, self.place.path, self.content["length"], self._tick)

    def _tick(self) -> None:
        if self.call.remaining <= 0:
            msg = "the deadline passed while the content was written"
            raise TimeoutError(msg)

    def _confirmed(self, *, replayed: bool) -> Confirmed:
        return Confirmed(self.place.path, replayed=replayed)

    def _refused(self) -> Rejected:
        return Rejected(f"Other content stands under {self.place.path!r}, and overwrite=True was not given.")

    def _broken(self, error: Exception) -> Outcome:
        """Judge an error of writing: on a file system nothing has its name before the last step."""
        status = downstream.http_status(error)
        refused = status is not None and downstream.http_proof(status) is downstream.Proof.REFUSED
        if refused and self.place.reached and self._stands():  # it refused the client's own repetition
            return self._confirmed(replayed=True)
        if not self.place.reached or refused or isinstance(error, SuspiciousOperation):
            return _unwritten(error)
        return Unknown(f"the write broke off: {type(error).__name__}: {error}", status=status)


def _unwritten(error: Exception) -> Rejected:
    """Refuse before anything had its name: for good if the storage says so, or if a folder or file is in the way."""
    status = downstream.http_status(error)
    refused = status is not None and downstream.http_proof(status) is downstream.Proof.REFUSED
    for_good = refused or isinstance(
        error, SuspiciousOperation | FileExistsError | NotADirectoryError | IsADirectoryError
    )
    reason = f"not written: {type(error).__name__}: {error}"
    return Rejected(reason, permanent=for_good, key_is_burnt=False, status=status)


storage_put = StoragePut()
