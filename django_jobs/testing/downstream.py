"""A provider for tests: a ledger keyed by idempotency key, and answers as scripted, in memory and at once."""

from __future__ import annotations

import json
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django_jobs import clock
from django_jobs.testing.clock import JobsClock
from django_jobs.testing.life import check_alive, current
from django_jobs.testing.script import MalformedAnswerError, Script, Step

if TYPE_CHECKING:
    import httpx

    from django_jobs.testing.http_server import DownstreamServer

KEY_LIFETIME = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the provider answered: an HTTP status and a JSON object; ``replayed`` if it remembered the key."""

    status: int
    body: Mapping[str, Any] = field(default_factory=dict)
    replayed: bool = False
    retry_after: timedelta | None = None

    @property
    def ok(self) -> bool:
        """Whether the operation was applied, now or when the key was first used."""
        return self.status == 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request as it came in; ``in_effect`` if a recorded effect made it, which ``JobsFaults`` can tell."""

    operation: str
    key: str | None
    body: Mapping[str, Any]
    at: datetime
    in_effect: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """One entry of the ledger: something that the provider really did."""

    ref: str
    operation: str
    key: str | None
    body: Mapping[str, Any]
    at: datetime
    in_effect: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    body: str
    answer: Answer
    since: datetime


class Calls(list[Call]):
    """Requests in their order; called with an operation, those of it."""

    def __call__(self, operation: str, *, key: str | None = None) -> Calls:
        """Return the requests of one operation, or those that it got under one key."""
        return Calls(call for call in self if call.operation == operation and (key is None or call.key == key))


class FakeDownstream:
    """Does what a provider with idempotency keys does, as far as its caller can tell.

    The same key with the same body gets the first answer again; with another body it is refused (409). After
    ``key_lifetime`` the provider has forgotten the key, and applies a repeated request a second time. A request without
    a key is applied each time.

    Args:
        key_lifetime: How long a key is remembered.
        now: The clock; default: the package's, which a test moves.
        keys: Whether it honours keys. Without, a key is a mere reference: it is kept, and every request is applied.
        lookup: Whether it can be asked what became of a key or reference.
    """

    def __init__(
        self,
        *,
        key_lifetime: timedelta = KEY_LIFETIME,
        now: Callable[[], datetime] = clock.now,
        keys: bool = True,
        lookup: bool = True,
    ) -> None:
        self.key_lifetime, self.keys, self.lookup = key_lifetime, keys, lookup
        self.calls = Calls()
        self.lookups = Calls()
        self.ledger: list[Applied] = []
        self._now = now
        self._lock = threading.RLock()  # its HTTP server asks from many threads
        self._known: dict[tuple[str, str], _Known] = {}
        self._scripts: defaultdict[str, Script] = defaultdict(Script)
        self._on_their_way: list[tuple[datetime, Call]] = []

    def on(self, operation: str) -> Script:
        """Return the script of an operation, to say what it answers next."""
        return self._scripts[operation]

    def send(self, operation: str, *, key: str | None = None, body: Mapping[str, Any] | None = None) -> Answer:
        """Take one request with the fields of ``body``.

        Raises:
            TimeoutError: The script says that no answer comes.
            ConnectionResetError: It says that the connection ends.
            MalformedAnswerError: It says that the answer is no JSON.
            SimulatedCrash: The process that asks is dead, so nothing arrives.
        """
        check_alive()
        with self._lock:
            return self._take(operation, key, dict(body or {}))

    def _take(self, operation: str, key: str | None, body: dict[str, Any]) -> Answer:
        self._let_arrive()
        life = current()
        in_effect = life is not None and life.in_effect
        call = Call(operation=operation, key=key, body=body, at=self._now(), in_effect=in_effect)
        self.calls.append(call)
        step = self._scripts[operation].take()
        if step.kind == "unavailable":
            return Answer(step.status, {"error": "try again later"})
        if step.kind == "limited":
            return Answer(step.status, {"error": "too many requests"}, retry_after=step.after)
        if step.kind == "late":
            self._on_their_way.append((call.at + step.after, call))
        if step.kind in {"ok", "declined", "slow"} or step.applied:
            answer = self._answer(call, step)
            if step.kind == "slow":
                _pass(step.after)
            if step.kind in {"ok", "declined", "slow"}:
                return answer
        raise _no_answer(operation, step)

    def find(self, operation: str, *, key: str) -> Answer:
        """Say what is known under a key: 200 with the first entry of the ledger, or 404; 501 if it cannot be asked.

        Raises:
            SimulatedCrash: The process that asks is dead.
        """
        check_alive()
        with self._lock:
            self._let_arrive()
            self.lookups.append(Call(operation=operation, key=key, body={}, at=self._now()))
            if not self.lookup:
                return Answer(501, {"error": "nothing can be looked up here"})
            for entry in self.applied(operation, key=key):
                return Answer(200, {"id": entry.ref, **entry.body})
            return Answer(404)

    def applied(self, operation: str, *, key: str | None = None) -> list[Applied]:
        """Return what was really done, oldest first; all of an operation, or what was asked for under one key."""
        with self._lock:
            self._let_arrive()
            return [item for item in self.ledger if item.operation == operation and (key is None or item.key == key)]

    def assert_each_applied_once(self) -> None:
        """Check that nothing was done twice: under one key, or, without keys, with one body.

        Raises:
            AssertionError: Something was.
        """
        with self._lock:
            self._let_arrive()
            seen: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
            for entry in self.ledger:
                seen[(entry.operation, f"under {entry.key}" if entry.key else f"with {_text(entry.body)}")].append(
                    entry.ref
                )
        twice = [f"{operation} {what}: {', '.join(refs)}" for (operation, what), refs in seen.items() if refs[1:]]
        if twice:
            raise AssertionError("Applied more than once: " + "; ".join(twice))

    def forget_keys(self) -> None:
        """Forget every key now, as a provider does after its lifetime; the ledger stays."""
        self._known.clear()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Bring back ledger, keys, scripts and what is on its way as they are now when the block ends."""
        lists: tuple[list[Any], ...] = (self.calls, self.lookups, self.ledger, self._on_their_way)
        before = [list(kept) for kept in lists]
        known = dict(self._known)
        steps = {operation: list(script.steps) for operation, script in self._scripts.items()}
        try:
            yield
        finally:
            for kept, items in zip(lists, before, strict=True):
                kept[:] = items
            self._known = known
            for operation, script in self._scripts.items():
                script.steps = deque(steps.get(operation, ()))

    def transport(self) -> httpx.BaseTransport:
        """Return a transport for httpx in front of this provider; needs the extra ``httpx``.

        A POST, PUT or PATCH is a request: the operation is the last part of the path, the key the header
        ``Idempotency-Key``, the body JSON. A GET asks: its path ends in the operation and the key.
        """
        from django_jobs.testing.transport import DownstreamTransport

        return DownstreamTransport(self)

    def as_http_server(self) -> AbstractContextManager[DownstreamServer]:
        """Return a real HTTP server in front of this provider, for workers that are processes; use it with ``with``.

        Paths, key and body are as in :meth:`transport`. A request without an answer is held until its client gives up.
        """
        from django_jobs.testing.http_server import DownstreamServer

        return DownstreamServer(self)

    def _answer(self, call: Call, step: Step) -> Answer:
        text = _text(call.body)
        place = (call.operation, call.key or "")
        known = self._known.get(place) if call.key and self.keys else None
        if known is not None and call.at - known.since < self.key_lifetime:
            if known.body != text:
                return Answer(409, {"error": "this key was used with another body"})
            return Answer(known.answer.status, known.answer.body, replayed=True)
        declines = step.kind == "declined"
        answer = Answer(step.status, {"error": step.reason}) if declines else self._apply(call, step.body)
        if call.key:
            self._known[place] = _Known(body=text, answer=answer, since=call.at)
        return answer

    def _apply(self, call: Call, fields: Mapping[str, Any]) -> Answer:
        ref = str(fields.get("id", f"{call.operation}_{len(self.ledger) + 1}"))
        self.ledger.append(
            Applied(
                ref=ref,
                operation=call.operation,
                key=call.key,
                body=call.body,
                at=self._now(),
                in_effect=call.in_effect,
            )
        )
        return Answer(200, {**fields, "id": ref})

    def _let_arrive(self) -> None:
        now = self._now()
        due = [item for item in self._on_their_way if item[0] <= now]
        self._on_their_way[:] = [item for item in self._on_their_way if item[0] > now]
        for _, call in sorted(due, key=lambda item: item[0]):
            self._answer(call, Step(kind="ok"))


def _text(body: Mapping[str, Any]) -> str:
    return json.dumps(body, sort_keys=True, default=str)


def _pass(delay: timedelta) -> None:
    moved = JobsClock.in_force()
    if moved is not None:
        moved.tick(delay)


def _no_answer(operation: str, step: Step) -> Exception:
    if step.kind == "reset":
        return ConnectionResetError(f"The connection of {operation} ended before an answer.")
    if step.kind == "malformed":
        return MalformedAnswerError(f"The answer to {operation} is no JSON: <html>")
    return TimeoutError(f"{operation} gave no answer in time.")
