"""What a provider promises about one operation, and what one request to it taught."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

from django_jobs.domain.durations import check_longest
from django_jobs.domain.states import SendOutcome
from django_jobs.exceptions import DefinitionError

OPEN = "open"  # the outcome of a send whose answer was never recorded


class Dedupe(StrEnum):
    """What a provider does with a repeated request."""

    KEY = "key"  # a documented idempotency key: the same key is applied once, inside its lifetime
    NATURAL = "natural"  # repeating the same bytes converges (a PUT, a conditional create)
    NONE = "none"  # a second request is a second effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantees:
    """What a provider promises; frozen into the effect's row when the first request is planned.

    ``key_lifetime`` is how long the provider remembers a key (required for, and only for, ``Dedupe.KEY``);
    ``caches_failures`` says that it answers a rejected key with the same rejection again; ``can_reconcile`` that it can
    be asked whether the operation happened. ``settle`` is how long after a send's deadline it may still be applied, and
    ``visible_after`` how much later an answer is sure to show it. Raises
    :class:`~django_jobs.exceptions.DefinitionError` for a promise that cannot be kept.
    """

    dedupe: Dedupe
    key_lifetime: timedelta | None = None
    key_max_length: int = 255
    key_alphabet: Literal["ascii", "uuid"] = "ascii"
    caches_failures: bool = False
    can_reconcile: bool = False
    settle: timedelta = timedelta(seconds=30)
    visible_after: timedelta = timedelta(0)
    docs: str = ""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "dedupe", Dedupe(self.dedupe))
        except ValueError:
            choices = ", ".join(repr(str(choice)) for choice in Dedupe)
            raise DefinitionError(f"dedupe is {self.dedupe!r}; give one of {choices}.") from None
        if (self.dedupe is Dedupe.KEY) != (self.key_lifetime is not None):
            raise DefinitionError("key_lifetime is required for dedupe='key', and makes sense for nothing else.")
        for name in ("key_lifetime", "settle", "visible_after"):
            _check_duration(name, getattr(self, name), may_miss=name == "key_lifetime")
        if self.key_lifetime is not None and self.key_lifetime <= timedelta(0):
            raise DefinitionError(f"key_lifetime is {self.key_lifetime}; give the time that the provider documents.")
        if self.key_alphabet not in ("ascii", "uuid"):
            raise DefinitionError(f"key_alphabet is {self.key_alphabet!r}; give 'ascii' or 'uuid'.")
        if min(self.settle, self.visible_after) < timedelta(0):
            raise DefinitionError("settle and visible_after are times that pass after a send; give 0 or more.")

    def as_dict(self) -> dict[str, Any]:
        """Return the promise as JSON values (times in seconds), as it is stored with the effect."""
        return {
            "dedupe": str(self.dedupe),
            "key_lifetime": None if self.key_lifetime is None else self.key_lifetime.total_seconds(),
            "key_max_length": self.key_max_length,
            "key_alphabet": self.key_alphabet,
            "caches_failures": self.caches_failures,
            "can_reconcile": self.can_reconcile,
            "settle": self.settle.total_seconds(),
            "visible_after": self.visible_after.total_seconds(),
            "docs": self.docs,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Guarantees:
        """Return the promise that :meth:`as_dict` wrote; names that this version does not know are left out."""
        known = {name: stored[name] for name in cls.__dataclass_fields__ if name in stored}
        for name in ("key_lifetime", "settle", "visible_after"):
            if known.get(name) is not None:
                known[name] = timedelta(seconds=known[name])
        return cls(**known)


def _check_duration(name: str, value: object, *, may_miss: bool) -> None:
    if value is None and may_miss:
        return
    if not isinstance(value, timedelta):
        raise DefinitionError(f"{name} is {value!r}; give a timedelta.")
    check_longest(value, what=name)


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The provider says: applied. Nothing takes that back.

    ``provider_ref`` is the provider's own id of what happened; ``replayed`` says that it answered from its memory of an
    earlier request with the same key. ``abandoned`` is never the provider's word: it marks what a handler gets instead
    of a receipt when the outcome stays unknown and ``on_ambiguous="accept"`` lets the job go on.
    """

    provider_ref: str
    _: KW_ONLY
    provider_request_id: str | None = None
    status: int | None = None
    replayed: bool = False
    result: Mapping[str, Any] = field(default_factory=dict)
    abandoned: bool = False


@dataclass(frozen=True, slots=True)
class Rejected:
    """The answer proves that the effect was **not** applied: a validation error, a declined card, or nothing was sent.

    ``permanent`` says that asking again with the same request cannot help. ``key_is_burnt`` says that this key would
    bring the same rejection again, so that another try needs another one (None: as the guarantees say).
    """

    reason: str
    _: KW_ONLY
    permanent: bool = True
    provider_request_id: str | None = None
    status: int | None = None
    retry_after: timedelta | None = None
    key_is_burnt: bool | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """Anything else: a time-out, a reset after the first byte, a 5xx, an answer that cannot be read.

    ``retry_after`` is how long the provider asks to be left alone before it is asked again.
    """

    reason: str
    _: KW_ONLY
    provider_request_id: str | None = None
    status: int | None = None
    retry_after: timedelta | None = None


Outcome = Confirmed | Rejected | Unknown


class Verdict(StrEnum):
    """What a provider answers when it is asked whether an operation happened."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # it knows the operation and says that it did not and will not happen
    NOT_FOUND = "not_found"  # whether that is final is for the rules to say, not for the operation
    PENDING = "pending"  # it knows the operation and still works on it
    UNAVAILABLE = "unavailable"  # it could not be asked


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """A provider's answer to the question whether an operation happened, with what it based it on."""

    verdict: Verdict
    _: KW_ONLY
    provider_ref: str | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastSend:
    """One earlier request of an effect: who sent which bytes under which key, and what is known of it.

    ``outcome`` is a :class:`~django_jobs.domain.states.SendOutcome` or ``"open"`` (None is read as open).
    ``key_is_burnt`` is what the provider's rejection said about the key (None: nothing).
    """

    number: int
    started_at: datetime
    outcome: str
    epoch: int = 0
    digest: str = ""
    job_id: object = None
    key: str = ""
    provider_request_id: str | None = None
    key_is_burnt: bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcome", outcome_text(self.outcome))


def outcome_text(outcome: str | None) -> str:
    """Return an outcome as text, ``"open"`` for None; raise ValueError for a word that is none."""
    return OPEN if outcome is None or outcome == OPEN else str(SendOutcome(outcome))
