"""What a fake provider answers next, as a test wrote it down."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, Self

Kind = Literal["ok", "declined", "unavailable", "limited", "timeout", "reset", "malformed", "late", "slow"]


class MalformedAnswerError(ValueError):
    """The provider answered with what is no JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One answer: of a kind, and whether the operation is applied although no good answer comes."""

    kind: Kind
    body: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    status: int = 200
    applied: bool = False
    after: timedelta = timedelta(0)


class Script:
    """What the provider answers to the next requests of one operation, one after the other; then it says ok."""

    def __init__(self) -> None:
        self.steps: deque[Step] = deque()

    def ok(self, **body: Any) -> Self:
        """Apply it, and answer with an ``id`` and these fields."""
        return self._add(Step(kind="ok", body=body))

    def declined(self, reason: str = "declined", *, status: int = 402) -> Self:
        """Refuse it for good; the key remembers that."""
        return self._add(Step(kind="declined", reason=reason, status=status))

    def unavailable(self, *, status: int = 503) -> Self:
        """Fail for now without applying anything, which the caller cannot know."""
        return self._add(Step(kind="unavailable", status=status))

    def rate_limited(self, *, retry_after: timedelta) -> Self:
        """Refuse it for now (429), and say when to come again; nothing is applied and the key remembers nothing."""
        return self._add(Step(kind="limited", status=429, after=retry_after))

    def timeout(self, *, applied: bool) -> Self:
        """Give no answer (``TimeoutError``), although it was or was not applied."""
        return self._add(Step(kind="timeout", applied=applied))

    def reset(self, *, applied: bool) -> Self:
        """End the connection instead of an answer (``ConnectionResetError``), although it was or was not applied."""
        return self._add(Step(kind="reset", applied=applied))

    def malformed(self, *, applied: bool) -> Self:
        """Answer 200 with a page instead of JSON (``MalformedAnswerError``), although it was or was not applied."""
        return self._add(Step(kind="malformed", applied=applied))

    def late(self, *, after: timedelta) -> Self:
        """Give no answer, and apply it when the clock has gone on by ``after``: the request was still on its way."""
        return self._add(Step(kind="late", after=after))

    def slow(self, *, after: timedelta) -> Self:
        """Apply it, and answer when the clock has gone on by ``after``: it is moved by so much during the call."""
        return self._add(Step(kind="slow", after=after))

    @property
    def then(self) -> Self:
        """The same script, for reading."""
        return self

    def take(self) -> Step:
        """Return the next step."""
        return self.steps.popleft() if self.steps else Step(kind="ok")

    def _add(self, step: Step) -> Self:
        self.steps.append(step)
        return self
