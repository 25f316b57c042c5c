"""From the row of an effect that was applied to the operation and the request that take it back."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from django_jobs.domain.compensation import Agreed
from django_jobs.domain.identity import canonical, request_digest
from django_jobs.effects.adapter import Operation, effect_named
from django_jobs.effects.receipts import RECEIPT, receipt_as_request
from django_jobs.exceptions import DefinitionError
from django_jobs.models import Send, SideEffect
from django_jobs.store.effect_rows import receipt_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TakingBack:
    """How one effect is taken back: give operation and request to ``context.effect``."""

    operation: Operation
    request: dict[str, Any]
    request_digest: str  # of the request as it is sent, the receipt and all amounts in it

    @property
    def agreed(self) -> Agreed:
        """What somebody says yes to who decides that the effect is taken back in this way."""
        return Agreed(
            operation=self.operation.name,
            dedupe=self.operation.guarantees.dedupe.value,
            request_digest=self.request_digest,
        )


def taking_back_of(effect: SideEffect) -> TakingBack:
    """Return how an effect that was applied is taken back by this code; reads only.

    Raises:
        DefinitionError: Nothing is declared for it, or its request does not fit what is; the message says what to do.
        PayloadError: Its stored request does not fit the annotations.
    """
    operation = replace(_declared_for(effect), provider=effect.provider)
    if not effect.request:
        msg = f"The request of the effect {effect.name!r} was removed by pruning, and its compensation needs it."
        raise DefinitionError(msg)
    sends = list(Send.objects.using(effect._state.db).filter(effect_id=effect.pk).order_by("number"))  # noqa: SLF001
    request = {**json.loads(effect.request), RECEIPT: receipt_as_request(receipt_of(effect, sends))}
    text = canonical(operation.bind(request))
    operation.restored(json.loads(text))
    return TakingBack(operation=operation, request=request, request_digest=request_digest(text))


def _declared_for(effect: SideEffect) -> Operation:
    if not effect.operation:
        msg = f"Which operation the effect {effect.name!r} was is not recorded: an older version wrote its row."
        raise DefinitionError(msg)
    found = effect_named(effect.operation)
    if found is None:
        msg = f"This code declares no operation {effect.operation!r}."
        raise DefinitionError(msg)
    if found.taken_back_by is None:
        msg = f"No compensation is declared for {effect.operation!r}."
        raise DefinitionError(msg)
    return found.taken_back_by.declared
