"""The provider's rules in order: what arrived, which fault it takes, what its key says, and what is then applied."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from typing import Any

from testproject.payments.faults import Fault, FaultBook, FaultName, ForgottenError, Holds, read_script
from testproject.payments.ledger import Ledger
from testproject.payments.rules import (
    Incoming,
    Movement,
    RefusalError,
    Reply,
    read_charge,
    read_order_id,
    read_refund,
)

MALFORMED_BODY = b"<html><body>502 upstream said something else"
FILTERS = {
    "charge": {"order_id", "operation", "idempotency_key"},
    "refund": {"order_id", "operation", "idempotency_key", "charge"},
}


class Desk:
    """
    Answers every business request; `None` in place of an answer means: close the socket without a word.

    Every method raises ForgottenError if the provider was reset or stopped meanwhile; the socket is then closed too.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.faults = FaultBook()
        self.holds = Holds()
        self._lock = threading.Lock()
        # In memory on purpose: a provider that died in the middle must not leave its keys "in progress" for ever.
        self._in_progress: dict[str, int] = {}

    def post(self, incoming: Incoming) -> Reply | None:
        """Serve `POST /charges` and `POST /refunds`."""
        try:
            movement = self._read(incoming)
        except RefusalError as error:
            number = self.ledger.arrive(method="POST", path=incoming.path, order_id=None, incoming=incoming)
            return self._answer(number, error.reply)
        order_id = movement.order_id
        number = self.ledger.arrive(method="POST", path=incoming.path, order_id=order_id, incoming=incoming)
        try:
            return self._serve(number, movement, incoming)
        except RefusalError as error:
            return self._answer(number, error.reply)

    def lookup(self, path: str, *, kind: str, query: dict[str, str]) -> Reply:
        """Serve `GET /charges` and `GET /refunds`, which callers use to ask whether something happened."""
        try:
            equal = _read_filters(kind, query)
        except RefusalError as error:
            number = self.ledger.arrive(method="GET", path=path, order_id=None)
            return self._answer(number, error.reply)
        number = self.ledger.arrive(method="GET", path=path, order_id=equal.get("order_id"))
        return self._answer(number, Reply(status=200, body={"data": self.ledger.find(kind, **equal)}))

    def control(self, action: str, body: dict[str, Any]) -> Reply:
        """Serve `POST /_control/faults`, `/_control/release` and `/_control/reset`."""
        if action == "faults":
            self.faults.add(read_script(body))
            return Reply(status=200, body={"pending": self.faults.pending()})
        if action == "release":
            return Reply(status=200, body={"released": self.holds.release(read_order_id(body.get("order_id")))})
        if action == "reset":
            self._reset()
            return Reply(status=200, body={"status": "empty"})
        raise RefusalError(404, "not_found", "Known actions are faults, release and reset.")

    def report(self) -> Reply:
        """Serve `GET /_ledger`."""
        return Reply(status=200, body=self.ledger.report() | {"faults_pending": self.faults.pending()})

    def stop(self) -> None:
        """Wake every held request (it applies nothing) and close the ledger."""
        self.holds.abandon()
        self.ledger.close()

    def _reset(self) -> None:
        self.faults.clear()
        with self._lock:
            self._in_progress.clear()
            self.ledger.reset()
        self.holds.abandon()

    def _read(self, incoming: Incoming) -> Movement:
        if incoming.path == "/charges":
            return read_charge(incoming.raw)
        charge_id, operation = read_refund(incoming.raw)
        found = self.ledger.find("charge", id=charge_id)
        if not found:
            raise RefusalError(404, "no_such_charge", f"There is no charge {charge_id}.")
        charge = found[0]
        if charge["status"] != "succeeded":
            raise RefusalError(422, "charge_not_succeeded", "Only a charge that succeeded can be refunded.")
        return Movement(
            kind="refund",
            order_id=charge["order_id"],
            amount=charge["amount"],
            currency=charge["currency"],
            operation=operation,
            charge=charge_id,
        )

    def _serve(self, number: int, movement: Movement, incoming: Incoming) -> Reply | None:
        fault = self.faults.take(movement.order_id)
        if fault is None:
            return self._answer(number, self._execute(number, movement, incoming, fault=None))
        self.ledger.note(number, "fault", fault=fault.name)
        match fault.name:
            case FaultName.DROP_REQUEST:
                reply = None
            case FaultName.LATE:
                arguments = (number, movement, incoming, fault)
                threading.Thread(target=self._apply_late, args=arguments, daemon=True).start()
                reply = None
            case FaultName.RATE_LIMITED:
                seconds = 1 if fault.seconds is None else math.ceil(fault.seconds)
                reply = _error(429, "rate_limited", headers={"Retry-After": str(seconds)})
            case FaultName.SERVER_ERROR:
                reply = _error(500, "server_error")
            case _:
                reply = self._spoil(fault, self._execute(number, movement, incoming, fault=fault))
        if reply is None:
            self.ledger.note(number, "dropped")
            return None
        return self._answer(number, reply)

    def _execute(self, number: int, movement: Movement, incoming: Incoming, *, fault: Fault | None) -> Reply:
        """Apply once per key. The key stays in progress through both holds, and is free before the answer leaves."""
        remembered = self._claim(number, incoming)
        try:
            if fault and fault.name is FaultName.HOLD_BEFORE_APPLY:
                self._hold(number, movement, seconds=fault.seconds)
            if remembered is not None:
                reply = remembered
            elif fault and fault.name is FaultName.DECLINED:
                reply = self.ledger.decline(number, movement, incoming=incoming)
            else:
                reply = self.ledger.apply(number, movement, incoming=incoming)
            if fault and fault.name is FaultName.HOLD_AFTER_APPLY:
                self._hold(number, movement, seconds=fault.seconds)
        finally:
            self._let_go(number, incoming)
        return reply

    def _claim(self, number: int, incoming: Incoming) -> Reply | None:
        if incoming.key is None:
            return None
        with self._lock:
            if incoming.key in self._in_progress:
                raise RefusalError(409, "idempotency_key_in_progress", "The first request with this key is under way.")
            remembered = self.ledger.remembered(incoming.key)
            if remembered is None:
                self._in_progress[incoming.key] = number
                return None
        path, digest, reply = remembered
        if (path, digest) != (incoming.path, incoming.digest):
            raise RefusalError(422, "idempotency_key_reused", "This key was first used with another request.")
        status = 200 if reply.status == 201 else reply.status
        return replace(reply, status=status, replayed=True, headers={"Idempotent-Replayed": "true"})

    def _let_go(self, number: int, incoming: Incoming) -> None:
        with self._lock:
            if incoming.key is not None and self._in_progress.get(incoming.key) == number:
                del self._in_progress[incoming.key]

    def _hold(self, number: int, movement: Movement, *, seconds: float | None) -> None:
        self.holds.wait(movement.order_id, seconds=seconds, on_held=lambda: self.ledger.note(number, "held"))

    def _apply_late(self, number: int, movement: Movement, incoming: Incoming, fault: Fault) -> None:
        # The key is not claimed while it waits: to the provider this request has not arrived yet.
        try:
            self._hold(number, movement, seconds=1 if fault.seconds is None else fault.seconds)
            self._execute(number, movement, incoming, fault=None)
            self.ledger.note(number, "late_done")
        except RefusalError:
            self.ledger.note(number, "late_refused")
        except ForgottenError:
            return

    def _spoil(self, fault: Fault, reply: Reply) -> Reply | None:
        if fault.name is FaultName.DROP_RESPONSE:
            return None
        if fault.name is FaultName.SERVER_ERROR_APPLIED:
            return _error(500, "server_error")
        if fault.name is FaultName.MALFORMED:
            return Reply(status=200, raw=MALFORMED_BODY)
        return reply

    def _answer(self, number: int, reply: Reply) -> Reply:
        self.ledger.answered(number, reply)
        return replace(reply, headers=reply.headers | {"X-Request-Id": f"req_{number:06d}"})


def _error(status: int, code: str, *, headers: dict[str, str] | None = None) -> Reply:
    return Reply(status=status, body={"error": {"code": code, "message": code}}, headers=headers or {})


def _read_filters(kind: str, query: dict[str, str]) -> dict[str, Any]:
    known = FILTERS[kind]
    if not query or query.keys() - known:
        raise RefusalError(400, "invalid_filter", f"Ask by one or more of {', '.join(sorted(known))}.")
    equal: dict[str, Any] = {("key" if name == "idempotency_key" else name): value for name, value in query.items()}
    if "order_id" in equal:
        if not equal["order_id"].isascii() or not equal["order_id"].isdigit():
            raise RefusalError(400, "invalid_filter", "order_id has to be a whole number.")
        equal["order_id"] = read_order_id(int(equal["order_id"]))
    return equal
