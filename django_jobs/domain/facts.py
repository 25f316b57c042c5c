"""What is known about one effect when a decision is made: its sends, its owner, its provider's promise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django_jobs.domain.providers import OPEN, Dedupe, Guarantees, PastSend, outcome_text
from django_jobs.domain.states import EffectState, SendOutcome

SKEW = timedelta(minutes=5)  # how far the provider's clock may be from ours when a key's lifetime ends

SHORTEST_WAIT = timedelta(seconds=1)

NOT_APPLIED = frozenset({str(SendOutcome.REJECTED), str(SendOutcome.NOT_APPLIED)})
UNCLEAR = frozenset({OPEN, str(SendOutcome.UNKNOWN)})


def join(outcomes: Iterable[str | None], *, resolved: bool = False, abandoned: bool = False) -> EffectState:
    """Return what the ``outcomes`` of all sends of an effect say together (None: open).

    One confirmed send is enough, whatever came later; ``resolved`` says that a reconciliation or a human found the
    effect applied. Only if every send is known not to have been applied is it rejected: the last send never decides.
    """
    found = {outcome_text(outcome) for outcome in outcomes}
    if resolved or SendOutcome.CONFIRMED in found:
        return EffectState.SUCCEEDED
    if abandoned:
        return EffectState.ABANDONED
    if OPEN in found:
        return EffectState.IN_FLIGHT
    if SendOutcome.UNKNOWN in found:
        return EffectState.AMBIGUOUS
    return EffectState.REJECTED if found else EffectState.PLANNED


def blocks_completion(state: EffectState, *, required: bool) -> bool:
    """Say whether a job may not succeed yet: an effect is unclear, or a required one was rejected."""
    if state is EffectState.REJECTED:
        return required
    return state not in (EffectState.SUCCEEDED, EffectState.ABANDONED)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectFacts:
    """Everything that :func:`~django_jobs.domain.effects.decide` looks at, read under the row's lock.

    ``call`` is how long the next request may take; ``settled_at`` when the last send can no longer be applied (None:
    not recorded); ``visible_after`` the lag of the provider's answers (None: as the guarantees say). ``resolved`` says
    who found the effect applied. ``digest`` is of the request that is asked for now, ``stored_digest`` of the row's.
    ``asked_since_last_send`` says that the provider was asked after the newest send; ``absence_proves`` that its "not
    found" means something: the unclear sends were made when they could be asked for already. ``abandoned`` says that
    the effect was given up by ``on_ambiguous="accept"``; ``owner`` names the owning job in messages. ``operation`` is
    the name of what is asked for now, ``stored_operation`` of what was asked for last; empty: nobody recorded it.
    """

    guarantees: Guarantees
    now: datetime
    call: timedelta
    digest: str
    sends: tuple[PastSend, ...] = ()
    stored_digest: str | None = None
    settled_at: datetime | None = None
    visible_after: timedelta | None = None
    resolved: Literal["", "found", "human"] = ""
    abandoned: bool = False
    owner_is_me: bool = True
    owner_unfinished: bool = True
    owner: object = None
    compensation: Literal["none", "open", "succeeded"] = "none"
    asked_since_last_send: bool = False
    absence_proves: bool = True
    on_ambiguous: Literal["review", "resend", "accept"] = "review"
    skew: timedelta = SKEW
    operation: str = ""
    stored_operation: str = ""

    @property
    def state(self) -> EffectState:
        """The join of the sends."""
        return join((send.outcome for send in self.sends), resolved=bool(self.resolved), abandoned=self.abandoned)

    @property
    def epoch(self) -> int:
        """The key epoch of the newest key that was used (0: none yet)."""
        return max((send.epoch for send in self.sends), default=0)

    @property
    def unclear(self) -> tuple[PastSend, ...]:
        """The sends that may or may not have been applied."""
        return tuple(send for send in self.sends if send.outcome in UNCLEAR)

    @property
    def calm_at(self) -> datetime:
        """When no send can be applied any more; estimated carefully if the row does not say."""
        if self.settled_at is not None:
            return self.settled_at
        newest = max((send.started_at for send in self.unclear), default=self.now)
        return newest + self.call + self.guarantees.settle if self.unclear else self.now

    @property
    def visible_at(self) -> datetime:
        """When the provider's answer is sure to show every send."""
        lag = self.guarantees.visible_after if self.visible_after is None else self.visible_after
        return self.calm_at + lag

    @property
    def key_expired(self) -> bool:
        """Whether the provider may have forgotten the current key before the next request could end."""
        if self.guarantees.dedupe is not Dedupe.KEY or self.guarantees.key_lifetime is None:
            return False
        first = min((send.started_at for send in self.sends if send.epoch == self.epoch), default=self.now)
        return self.now + self.call + self.skew >= first + self.guarantees.key_lifetime

    @property
    def key_protects(self) -> bool:
        """Whether the current key keeps a repetition from being applied twice; every unclear send must have used it."""
        alive = self.guarantees.dedupe is Dedupe.KEY and not self.key_expired
        return alive and all(send.epoch == self.epoch for send in self.unclear)

    @property
    def repeatable(self) -> bool:
        """Whether the same request may go out again beside the unclear ones: by nature, or because the key protects."""
        return self.guarantees.dedupe is Dedupe.NATURAL or self.key_protects

    @property
    def key_burnt(self) -> bool:
        """Whether the provider itself rejected a send under the current key and would only repeat that rejection."""
        return any(
            send.epoch == self.epoch
            and send.outcome == SendOutcome.REJECTED
            and (self.guarantees.caches_failures if send.key_is_burnt is None else send.key_is_burnt)
            for send in self.sends
        )

    @property
    def operation_changed(self) -> bool:
        """Whether something else was sent under this name and key than what is asked for now."""
        return bool(self.sends and self.operation and self.stored_operation) and self.operation != self.stored_operation

    @property
    def bytes_changed(self) -> bool:
        """Whether the current key was used for another request than the one asked for now."""
        under_key = {send.digest for send in self.sends if send.epoch == self.epoch and send.digest}
        return bool(under_key - {self.digest}) or (bool(self.sends) and self.stored_digest not in (None, self.digest))
