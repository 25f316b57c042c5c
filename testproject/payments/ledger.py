"""The provider's memory in one SQLite file: what it applied, under which keys, and every request and event."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from testproject.payments.faults import FaultName, ForgottenError
from testproject.payments.rules import Incoming, Movement, Reply

SCHEMA = """
CREATE TABLE IF NOT EXISTS movements (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL CHECK (kind IN ('charge', 'refund')),
    status TEXT NOT NULL CHECK (status IN ('succeeded', 'declined')), order_id INTEGER NOT NULL,
    amount TEXT NOT NULL, currency TEXT NOT NULL, charge TEXT, key TEXT, operation TEXT,
    applied_at TEXT NOT NULL, request INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS movements_order ON movements (order_id);
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY, path TEXT NOT NULL, body_sha256 TEXT NOT NULL, status INTEGER NOT NULL, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS requests (
    n INTEGER PRIMARY KEY AUTOINCREMENT, method TEXT NOT NULL, path TEXT NOT NULL, order_id INTEGER, key TEXT,
    body_sha256 TEXT, arrived_at TEXT NOT NULL, fault TEXT, applied INTEGER NOT NULL DEFAULT 0, status INTEGER,
    replayed INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, n INTEGER NOT NULL, kind TEXT NOT NULL, applied_for_order INTEGER NOT NULL);
"""
EVENT_COLUMNS = "e.seq, e.n, e.kind, r.method, r.path, r.order_id, r.key, r.fault, r.status, e.applied_for_order"


class Ledger:
    """
    One connection under one lock: every change is a transaction of its own that a killed provider keeps or never made.

    A request number that is older than the last reset raises ForgottenError, so that a request which was held through
    a reset cannot write into the emptied ledger.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        self._forgotten_up_to = 0
        self._closed = False
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        # NORMAL: a commit outlives a killed process, which is all that this ledger promises; a power cut may undo it.
        self._db.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; {SCHEMA}")

    def arrive(self, *, method: str, path: str, order_id: int | None, incoming: Incoming | None = None) -> int:
        """Note that a request came in and return its number."""
        key, digest = (incoming.key, incoming.digest) if incoming else (None, None)
        with self._change() as db:
            cursor = db.execute(
                "INSERT INTO requests (method, path, order_id, key, body_sha256, arrived_at) VALUES (?, ?, ?, ?, ?, ?)",
                (method, path, order_id, key, digest, _now()),
            )
            number = int(cursor.lastrowid or 0)
            self._tell(number, "arrived")
        return number

    def note(self, number: int, kind: str, *, fault: FaultName | None = None) -> None:
        """Add an event to a request, and the fault that it took."""
        with self._change(number) as db:
            if fault is not None:
                db.execute("UPDATE requests SET fault = ? WHERE n = ?", (fault, number))
            self._tell(number, kind)

    def answered(self, number: int, reply: Reply) -> None:
        """Note the answer that is about to be written to the socket."""
        with self._change(number) as db:
            db.execute(
                "UPDATE requests SET status = ?, replayed = ? WHERE n = ?", (reply.status, reply.replayed, number)
            )
            self._tell(number, "answered")

    def apply(self, number: int, movement: Movement, *, incoming: Incoming) -> Reply:
        """Move the money and remember the answer under the key, in one transaction."""
        with self._change(number) as db:
            record = self._insert(number, movement, status="succeeded", key=incoming.key)
            reply = Reply(status=201, body=record)
            self._remember(incoming, reply)
            db.execute("UPDATE requests SET applied = 1 WHERE n = ?", (number,))
            self._tell(number, "applied")
        return reply

    def decline(self, number: int, movement: Movement, *, incoming: Incoming) -> Reply:
        """Record a declined card and remember the refusal under the key, in one transaction."""
        with self._change(number):
            record = self._insert(number, movement, status="declined", key=incoming.key)
            error = {"code": "card_declined", "message": "The card was declined.", movement.kind: record["id"]}
            reply = Reply(status=402, body={"error": error})
            self._remember(incoming, reply)
            self._tell(number, "declined")
        return reply

    def remembered(self, key: str) -> tuple[str, str, Reply] | None:
        """Return (path, digest, answer) of the request that used the key first, or None."""
        row = self._rows("SELECT path, body_sha256, status, body FROM answers WHERE key = ?", key)
        if not row:
            return None
        found = row[0]
        return found["path"], found["body_sha256"], Reply(status=found["status"], body=json.loads(found["body"]))

    def find(self, kind: str, **equal: object) -> list[dict[str, Any]]:
        """Return charges or refunds, oldest first; `equal` holds columns and the values they must have."""
        where = "".join(f" AND {column} = ?" for column in equal)
        rows = self._rows(f"SELECT * FROM movements WHERE kind = ?{where} ORDER BY rowid", kind, *equal.values())
        refunded = {row["charge"] for row in self._rows("SELECT charge FROM movements WHERE kind = 'refund'")}
        return [_public(row) | ({"refunded": row["id"] in refunded} if kind == "charge" else {}) for row in rows]

    def report(self) -> dict[str, Any]:
        """Return what was applied and every request, as `GET /_ledger` shows it."""
        with self._lock:
            charges, refunds = self.find("charge"), self.find("refund")
            requests = self._rows("SELECT * FROM requests ORDER BY n")
        applied = [charge for charge in charges if charge["status"] == "succeeded"]
        counts: dict[str, int] = {}
        for charge in applied:
            counts[str(charge["order_id"])] = counts.get(str(charge["order_id"]), 0) + 1
        return {
            "charges": applied,
            "declined": [charge for charge in charges if charge["status"] == "declined"],
            "refunds": refunds,
            "applied_per_order": counts,
            "requests": [
                row | {"applied": bool(row["applied"]), "replayed": bool(row["replayed"])} for row in requests
            ],
        }

    def events(self, *, after: int, seconds: float) -> list[dict[str, Any]]:
        """Return the events behind `after`, waiting up to `seconds` for the first of them."""
        deadline = time.monotonic() + seconds
        query = f"SELECT {EVENT_COLUMNS} FROM events e JOIN requests r USING (n) WHERE e.seq > ? ORDER BY e.seq"
        with self._lock:
            while not (found := self._rows(query, after)):
                left = deadline - time.monotonic()
                if left <= 0:
                    return []
                self._news.wait(left)
        return found

    def reset(self) -> None:
        """Forget everything; numbers go on, so that nothing old can be taken for something new."""
        with self._change() as db:
            newest = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'requests'").fetchone()
            self._forgotten_up_to = newest["seq"] if newest else 0
            for table in ("movements", "answers", "requests", "events"):
                db.execute(f"DELETE FROM {table}")

    def close(self) -> None:
        """Close the file; later changes raise ForgottenError."""
        with self._lock:
            self._closed = True
            self._db.close()
            self._news.notify_all()

    @contextmanager
    def _change(self, number: int | None = None) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._closed or (number is not None and number <= self._forgotten_up_to):
                raise ForgottenError
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
            self._news.notify_all()

    def _rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        with self._lock:
            if self._closed:
                raise ForgottenError
            return [dict(row) for row in self._db.execute(query, values)]

    def _tell(self, number: int, kind: str) -> None:
        self._db.execute(
            "INSERT INTO events (n, kind, applied_for_order) SELECT n, ?, (SELECT count(*) FROM movements m WHERE"
            " m.order_id = r.order_id AND m.kind = 'charge' AND m.status = 'succeeded') FROM requests r WHERE n = ?",
            (kind, number),
        )

    def _insert(self, number: int, movement: Movement, *, status: str, key: str | None) -> dict[str, Any]:
        row = {
            "id": ("ch_" if movement.kind == "charge" else "re_") + uuid.uuid4().hex,
            "kind": movement.kind,
            "status": status,
            "order_id": movement.order_id,
            "amount": movement.amount,
            "currency": movement.currency,
            "charge": movement.charge,
            "key": key,
            "operation": movement.operation,
            "applied_at": _now(),
            "request": number,
        }
        names = ", ".join(row)
        places = ", ".join(f":{name}" for name in row)
        self._db.execute(f"INSERT INTO movements ({names}) VALUES ({places})", row)
        return _public(row)

    def _remember(self, incoming: Incoming, reply: Reply) -> None:
        if incoming.key is not None:
            self._db.execute(
                "INSERT INTO answers (key, path, body_sha256, status, body) VALUES (?, ?, ?, ?, ?)",
                (incoming.key, incoming.path, incoming.digest, reply.status, json.dumps(reply.body)),
            )


def _public(row: dict[str, Any]) -> dict[str, Any]:
    hidden = {"kind", "request"} if row["kind"] == "refund" else {"kind", "request", "charge"}
    return {name: value for name, value in row.items() if name not in hidden}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
