"""From the row of an effect that was applied to the operation and the request that take it back."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from django_jobs.domain.identity import canonical
from django_jobs.effects.adapter import Operation, declared_effects
from django_jobs.effects.receipts import RECEIPT, receipt_as_request
from django_jobs.exceptions import DefinitionError
from django_jobs.models import Send, SideEffect
from django_jobs.store.effect_rows import receipt_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TakingBack:
    """How one effect is taken back: give both to ``context.effect``."""

    operation: Operation
    request: dict[str, Any]


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
    operation.restored(json.loads(canonical(operation.bind(request))))
    return TakingBack(operation=operation, request=request)


def _declared_for(effect: SideEffect) -> Operation:
    if not effect.operation:
        msg = f"Which operation the effect {effect.name!r} was is not recorded: an older version wrote its row."
        raise DefinitionError(msg)
    found = declared_effects().get(effect.operation)
    if found is None:
        msg = f"This code declares no operation {effect.operation!r}."
        raise DefinitionError(msg)
    if found.taken_back_by is None:
        msg = f"No compensation is declared for {effect.operation!r}."
        raise DefinitionError(msg)
    return found.taken_back_by.declared
