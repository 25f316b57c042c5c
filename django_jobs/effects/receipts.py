"""What a provider confirmed, in the form in which it is stored with the request that takes it back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_jobs.domain.providers import Confirmed
from django_jobs.exceptions import PayloadError

RECEIPT = "confirmed"  # the second parameter of a compensation


def receipt_as_request(receipt: Confirmed) -> dict[str, Any]:
    """Return what stays the same whatever is learned later: the bytes of a request that was made must not change."""
    return {
        "provider_ref": receipt.provider_ref,
        "provider_request_id": receipt.provider_request_id,
        "result": dict(receipt.result),
    }


def receipt_from(stored: object) -> Confirmed:
    """Return the receipt that :func:`receipt_as_request` wrote.

    Raises:
        PayloadError: It is none.
    """
    if not isinstance(stored, Mapping) or not isinstance(stored.get("provider_ref"), str):
        msg = "A compensation is asked for by a decision about an effect, not by a handler: its receipt is missing."
        raise PayloadError(msg)
    return Confirmed(
        stored["provider_ref"],
        provider_request_id=stored.get("provider_request_id"),
        replayed=True,
        result=dict(stored.get("result") or {}),
    )
