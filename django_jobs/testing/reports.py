"""What became of the attempts that a test let run."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from django_jobs.models import Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReport:
    """One attempt after its end, as it is stored, and what it left of its job.

    Args:
        outcome: succeeded, failed, lost, released, snoozed or cancelled.
        error_type: The class of what the handler raised; empty after a success.
        error: Its message, with secrets masked, or why the attempt ended otherwise.
        traceback: Its traceback, masked too.
        job_state: The state of the job right after this attempt.
        dead_reason: Why the job became a dead letter; empty if it did not.
        result: What the handler returned, as JSON gives it back; None without a result.
    """

    job_id: uuid.UUID
    job_type: str
    number: int
    outcome: str
    error_class: str
    error_type: str
    error: str
    traceback: str
    job_state: str
    dead_reason: str
    result: Any

    @classmethod
    def of(cls, attempt: Attempt) -> Self:
        """Read the report of an attempt that has just ended."""
        job, payload = attempt.job, getattr(attempt.job, "payload", None)
        stored = payload.result if payload is not None else None
        return cls(
            job_id=job.pk,
            job_type=job.job_type,
            number=attempt.number,
            outcome=attempt.outcome or "",
            error_class=attempt.error_class,
            error_type=attempt.error_type,
            error=attempt.message,
            traceback=attempt.traceback,
            job_state=job.state,
            dead_reason=job.dead_reason,
            result=json.loads(stored) if stored is not None else None,
        )

    @property
    def succeeded(self) -> bool:
        """Whether the attempt succeeded."""
        return self.outcome == "succeeded"

    def __str__(self) -> str:
        text = f"attempt {self.number} of {self.job_type} {self.job_id}: {self.outcome}"
        if not self.succeeded:
            text += f" ({': '.join(filter(None, (self.error_type, self.error)))})"
        return f"{text}, the job is {self.job_state}" + (f" ({self.dead_reason})" if self.dead_reason else "")


@dataclass(frozen=True, slots=True)
class RunReport:
    """The attempts of one run, in the order in which they ended."""

    attempts: tuple[AttemptReport, ...] = ()

    @classmethod
    def of(cls, attempts: Iterable[AttemptReport]) -> Self:
        """Make a report of these attempts."""
        return cls(tuple(attempts))

    def __len__(self) -> int:
        return len(self.attempts)

    @property
    def failures(self) -> tuple[AttemptReport, ...]:
        """The attempts that did not succeed."""
        return tuple(attempt for attempt in self.attempts if not attempt.succeeded)

    @property
    def dead_letters(self) -> tuple[AttemptReport, ...]:
        """The last attempts of the jobs that became dead letters."""
        return tuple(attempt for attempt in self.attempts if attempt.job_state == "dead_lettered")

    @property
    def outcomes(self) -> list[str]:
        """The outcome of each attempt."""
        return [attempt.outcome for attempt in self.attempts]

    def assert_succeeded(self) -> Self:
        """Return the report if every attempt succeeded.

        Raises:
            AssertionError: One did not; the message has each error with its traceback.
        """
        if self.failures:
            texts = [f"{attempt}\n{attempt.traceback}".rstrip() for attempt in self.failures]
            msg = f"{len(self.failures)} of {len(self)} attempts did not succeed.\n\n" + "\n\n".join(texts)
            raise AssertionError(msg)
        return self

    def __str__(self) -> str:
        return "\n".join(map(str, self.attempts)) or "no attempt"
