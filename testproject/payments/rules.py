"""What the provider accepts: the fields of a charge and a refund, the form of a key, and its refusals."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

KEY_FORM = re.compile(r"[\x21-\x7e]{1,255}")
AMOUNT_FORM = re.compile(r"(?!0+\.00)\d{1,9}\.\d{2}")
CURRENCY_FORM = re.compile(r"[A-Z]{3}")
OPERATION_FORM = re.compile(r"[\x20-\x7e]{1,255}")
ORDER_LIMIT = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer of the provider; `raw` replaces the JSON body where the fault `malformed` asks for it."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    replayed: bool = False
    raw: bytes | None = None


class RefusalError(Exception):
    """The request is refused and nothing was applied or recorded under its key."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.reply = Reply(status=status, body={"error": {"code": code, "message": message}})


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """One POST as it came off the wire."""

    path: str
    key: str | None
    raw: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the exact bytes: a repeated request has to be byte-equal."""
        return hashlib.sha256(self.raw).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """What is to be applied: a charge, or the refund of one (`charge` is then its id)."""

    kind: str
    order_id: int
    amount: str
    currency: str
    operation: str | None
    charge: str | None = None


def read_object(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in a body; anything else is refused with 400."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RefusalError(400, "invalid_json", f"The body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RefusalError(400, "invalid_json", "The body has to be a JSON object.")
    return value


def read_key(header: str | None) -> str | None:
    """Return the idempotency key, or None without the header; a malformed key is refused with 400."""
    if header is None:
        return None
    if not KEY_FORM.fullmatch(header):
        raise RefusalError(400, "invalid_idempotency_key", "Idempotency-Key takes 1 to 255 printable ASCII signs.")
    return header


def read_order_id(value: object) -> int:
    """Return an order's number; anything but a positive whole number is refused with 422."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < ORDER_LIMIT:
        raise RefusalError(422, "invalid_order_id", "order_id has to be a positive whole number.")
    return value


def read_charge(raw: bytes) -> Movement:
    """Return the charge that a body asks for, or refuse it with 400 or 422."""
    body = read_object(raw)
    _refuse_unknown(body, known={"order_id", "amount", "currency", "operation"})
    return Movement(
        kind="charge",
        order_id=read_order_id(body.get("order_id")),
        amount=_read_text(body, "amount", form=AMOUNT_FORM, hint='a text above zero such as "12.50"'),
        currency=_read_text(body, "currency", form=CURRENCY_FORM, hint='three capital letters such as "EUR"'),
        operation=_read_text(body, "operation", form=OPERATION_FORM, hint="the caller's own id, 1 to 255 signs"),
    )


def read_refund(raw: bytes) -> tuple[str, str | None]:
    """Return (charge id, operation or None) of a refund's body, or refuse it with 400 or 422."""
    body = read_object(raw)
    _refuse_unknown(body, known={"charge", "operation"})
    charge = _read_text(body, "charge", form=KEY_FORM, hint="the id of a charge")
    if body.get("operation") is None:
        return charge, None
    return charge, _read_text(body, "operation", form=OPERATION_FORM, hint="the caller's own id, 1 to 255 signs")


def _read_text(body: dict[str, Any], name: str, *, form: re.Pattern[str], hint: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not form.fullmatch(value):
        raise RefusalError(422, f"invalid_{name}", f"{name} has to be {hint}.")
    return value


def _refuse_unknown(body: dict[str, Any], *, known: set[str]) -> None:
    if unknown := sorted(body.keys() - known):
        raise RefusalError(422, "unknown_field", f"Unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}.")
