"""A provider for tests: a ledger keyed by idempotency key, and answers as scripted, in memory and at once."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from django_jobs import clock

if TYPE_CHECKING:
    import httpx

KEY_LIFETIME = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the provider answered: an HTTP status and a JSON object; ``replayed`` if it remembered the key."""

    status: int
    body: Mapping[str, Any] = field(default_factory=dict)
    replayed: bool = False

    @property
    def ok(self) -> bool:
        """Whether the operation was applied, now or when the key was first used."""
        return self.status == 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request as it came in."""

    operation: str
    key: str | None
    body: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """One entry of the ledger: something that the provider really did."""

    ref: str
    operation: str
    key: str | None
    body: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    kind: str  # ok, declined, unavailable, timeout, late
    body: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    applied: bool = False
    after: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    body: str
    answer: Answer
    since: datetime


class Script:
    """What the provider answers to the next requests of one operation, one after the other; then it says ok."""

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque()

    def ok(self, **body: Any) -> Self:
        """Apply it, and answer with an ``id`` and these fields."""
        return self._add(_Step(kind="ok", body=body))

    def declined(self, reason: str = "declined") -> Self:
        """Refuse it for good (402); the key remembers that."""
        return self._add(_Step(kind="declined", reason=reason))

    def unavailable(self) -> Self:
        """Fail for now (503) without applying anything, which the caller cannot know."""
        return self._add(_Step(kind="unavailable"))

    def timeout(self, *, applied: bool) -> Self:
        """Give no answer (``TimeoutError``), although it was or was not applied."""
        return self._add(_Step(kind="timeout", applied=applied))

    def late(self, *, after: timedelta) -> Self:
        """Give no answer, and apply it when the clock has gone on by ``after``: the request was still on its way."""
        return self._add(_Step(kind="late", after=after))

    @property
    def then(self) -> Self:
        """The same script, for reading."""
        return self

    def take(self) -> _Step:
        """Return the next step."""
        return self._steps.popleft() if self._steps else _Step(kind="ok")

    def _add(self, step: _Step) -> Self:
        self._steps.append(step)
        return self


class FakeDownstream:
    """Does what a provider with idempotency keys does, as far as its caller can tell.

    The same key with the same body gets the first answer again; with another body it is refused (409). After
    ``key_lifetime`` the provider has forgotten the key, and applies a repeated request a second time. A request without
    a key is applied each time.

    Args:
        key_lifetime: How long a key is remembered.
        now: The clock; default: the package's, which a test moves.
    """

    def __init__(self, *, key_lifetime: timedelta = KEY_LIFETIME, now: Callable[[], datetime] = clock.now) -> None:
        self.key_lifetime = key_lifetime
        self.calls: list[Call] = []
        self.lookups: list[Call] = []
        self._now = now
        self._ledger: list[Applied] = []
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
        """
        self._let_arrive()
        call = Call(operation=operation, key=key, body=dict(body or {}), at=self._now())
        self.calls.append(call)
        step = self._scripts[operation].take()
        if step.kind == "unavailable":
            return Answer(503, {"error": "try again later"})
        if step.kind == "late":
            self._on_their_way.append((call.at + step.after, call))
        elif step.kind != "timeout" or step.applied:
            answer = self._answer(call, step)
            if step.kind != "timeout":
                return answer
        msg = f"{operation} gave no answer in time."
        raise TimeoutError(msg)

    def find(self, operation: str, *, key: str) -> Answer:
        """Say what is known under a key: 200 with the first entry of the ledger, or 404."""
        self._let_arrive()
        self.lookups.append(Call(operation=operation, key=key, body={}, at=self._now()))
        for entry in self.applied(operation, key=key):
            return Answer(200, {"id": entry.ref, **entry.body})
        return Answer(404)

    def applied(self, operation: str, *, key: str | None = None) -> list[Applied]:
        """Return what was really done, oldest first; all of an operation, or what was asked for under one key."""
        self._let_arrive()
        return [entry for entry in self._ledger if entry.operation == operation and (key is None or entry.key == key)]

    def assert_each_applied_once(self) -> None:
        """Check that nothing was done twice under one key.

        Raises:
            AssertionError: Something was.
        """
        self._let_arrive()
        seen: defaultdict[tuple[str, str | None], list[str]] = defaultdict(list)
        for entry in self._ledger:
            seen[(entry.operation, entry.key)].append(entry.ref)
        twice = [f"{operation} under {key}: {', '.join(refs)}" for (operation, key), refs in seen.items() if refs[1:]]
        if twice:
            raise AssertionError("Applied more than once: " + "; ".join(twice))

    def forget_keys(self) -> None:
        """Forget every key now, as a provider does after its lifetime; the ledger stays."""
        self._known.clear()

    def transport(self) -> httpx.BaseTransport:
        """Return a transport for httpx in front of this provider; needs the extra ``httpx``.

        A POST, PUT or PATCH is a request: the operation is the last part of the path, the key the header
        ``Idempotency-Key``, the body JSON. A GET asks: its path ends in the operation and the key.
        """
        from django_jobs.testing.transport import DownstreamTransport

        return DownstreamTransport(self)

    def _answer(self, call: Call, step: _Step) -> Answer:
        text = json.dumps(call.body, sort_keys=True, default=str)
        place = (call.operation, call.key or "")
        known = self._known.get(place) if call.key else None
        if known is not None and call.at - known.since < self.key_lifetime:
            if known.body != text:
                return Answer(409, {"error": "this key was used with another body"})
            return Answer(known.answer.status, known.answer.body, replayed=True)
        answer = Answer(402, {"error": step.reason}) if step.kind == "declined" else self._apply(call, step.body)
        if call.key:
            self._known[place] = _Known(body=text, answer=answer, since=call.at)
        return answer

    def _apply(self, call: Call, fields: Mapping[str, Any]) -> Answer:
        ref = str(fields.get("id", f"{call.operation}_{len(self._ledger) + 1}"))
        self._ledger.append(Applied(ref=ref, operation=call.operation, key=call.key, body=call.body, at=self._now()))
        return Answer(200, {**fields, "id": ref})

    def _let_arrive(self) -> None:
        now = self._now()
        due = [item for item in self._on_their_way if item[0] <= now]
        self._on_their_way = [item for item in self._on_their_way if item[0] > now]
        for _, call in sorted(due, key=lambda item: item[0]):
            self._answer(call, _Step(kind="ok"))
