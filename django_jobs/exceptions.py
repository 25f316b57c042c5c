"""Every error of the package, under one base, and what a handler may raise as a wish or catch as a business result."""

from __future__ import annotations

import uuid
from datetime import timedelta


class JobsError(Exception):
    """Base of every error of django_jobs."""


class DefinitionError(JobsError):
    """A job, effect or setting is declared in a way that cannot work."""


class HeartbeatFileError(JobsError):
    """The heartbeat file cannot be written where it was asked for, or what is there is none."""


class PayloadError(JobsError, ValueError):
    """The arguments cannot be stored as a payload; the message names the place and the mend."""


class KeyFormatError(PayloadError):
    """An idempotency key or another stored name is empty, too long or has signs outside printable ASCII."""


class IdempotencyConflictError(JobsError):
    """The key is live with other arguments; nothing was stored."""

    def __init__(self, message: str, *, job_id: object = None) -> None:
        super().__init__(message)
        self.job_id = job_id


class DuplicateJobError(JobsError):
    """The key is live with the same arguments and the job type rejects duplicates."""

    def __init__(self, message: str, *, job_id: object = None) -> None:
        super().__init__(message)
        self.job_id = job_id


class DuplicateOfDeadJobError(DuplicateJobError):
    """The key belongs to a dead letter, so this enqueue would change nothing until a human decides."""


class HookError(JobsError):
    """A propagator or a middleware of the project cannot do its part; ``hook`` names it. An enqueue stored nothing."""

    def __init__(self, message: str, *, hook: str = "") -> None:
        super().__init__(message)
        self.hook = hook


class EnqueueContendedError(JobsError):
    """The key changed hands again and again while it was read; enqueue once more."""


class QueueFullError(JobsError):
    """The queue is at its capacity; nothing was stored. ``retry_after`` is None when the call alone is too large."""

    def __init__(self, message: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BatchError(JobsError):
    """Members are added to a batch where that cannot be."""


class BatchClosedError(BatchError):
    """The batch is closed: it takes no members any more."""

    def __init__(self, message: str, *, batch_id: object = None) -> None:
        super().__init__(message)
        self.batch_id = batch_id


class DuplicateBatchError(BatchError):
    """A batch with this key is there, with the id ``batch_id``; nothing was stored."""

    def __init__(self, message: str, *, batch_id: uuid.UUID) -> None:
        super().__init__(message)
        self.batch_id = batch_id


class PauseError(JobsError, ValueError):
    """A pause names no actor, no reason, an unknown kind, or an end that is over."""


class OperatorError(JobsError, ValueError):
    """A decision names no operator, owner or reason, or one that cannot be stored."""


class ActionRefusedError(JobsError):
    """The decision cannot be carried out now; nothing was written. ``plan`` says why."""

    def __init__(self, message: str, *, plan: object = None) -> None:
        super().__init__(message)
        self.plan = plan


class ActionChangedError(JobsError):
    """What was acknowledged is not what is there now; nothing was written. ``plan`` is the present one."""

    def __init__(self, message: str, *, plan: object = None) -> None:
        super().__init__(message)
        self.plan = plan


class ActionOvertakenError(ActionChangedError, ActionRefusedError):
    """What was acknowledged is not there any more, and the decision cannot be carried out now; nothing was written."""


class RowBusyError(JobsError):
    """A worker is committing the row that a decision is about; nothing was written, and another try may do it."""


class EventError(JobsError, ValueError):
    """An event is not declared, does not fit its declaration, or is too large; nothing was stored."""


class WebhookError(JobsError, ValueError):
    """An inbound webhook is not what the sender signed, or not of now; answer 400 and do nothing with it."""


class WebhookHeaderError(WebhookError):
    """A header that the signature needs is missing or cannot be read."""


class WebhookTooOldError(WebhookError):
    """The webhook was signed longer ago than the tolerance: somebody may have kept it and sends it again."""


class WebhookInFutureError(WebhookError):
    """The webhook was signed further ahead than the tolerance: one of the two clocks is wrong."""


class WebhookSignatureError(WebhookError):
    """No signature of the webhook was made with one of the secrets."""


class OutsideTransactionError(JobsError):
    """This must commit together with something, and no transaction is open."""


class CrossDatabaseError(JobsError):
    """A transaction is open on another database, so this enqueue would not commit together with it."""


class UnknownJobTypeError(JobsError, LookupError):
    """No handler is registered under this name."""


class OutsideCompletionError(JobsError):
    """Inside a handler this is only possible where it commits together with the success."""


class JobFailedError(JobsError):
    """The job whose result was asked for is a dead letter, or was cancelled; ``result`` has what is known of it."""

    def __init__(self, message: str, *, result: object = None) -> None:
        super().__init__(message)
        self.result = result


class ResultTimeoutError(JobsError, TimeoutError):
    """The job has not ended in the time that was given; it goes on."""


class ResultGoneError(JobsError, LookupError):
    """There is no such job: it never committed, or it or its result was pruned."""


class WouldWaitForeverError(JobsError):
    """Waiting for a job here could never end, or would hold what that job needs."""


class ContextClosedError(JobsError):
    """The attempt has ended; its context refuses further use."""


class CalledOnLoopError(DefinitionError):
    """A method of the context was called in a coroutine instead of its awaited twin; the message names it."""


class LeaseLostError(JobsError):
    """This attempt no longer owns the job; what it wanted to write was refused and nothing changed."""

    def __init__(self, message: str, *, operation: str = "") -> None:
        super().__init__(message)
        self.operation = operation


class CommitLostError(JobsError):
    """The reply to a COMMIT was lost and the database shows that it did not happen."""


class HardTimeoutError(JobsError):
    """The handler ran past its lease and was ended."""


class SoftTimeoutError(JobsError):
    """Raised inside a handler whose type asks for it (``soft_timeout=True``): its budget is over, so it should end.

    What is left of the lease, about its cleanup, is for that. It comes once in each budget; to catch it and to return
    is a success.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(args or (SOFT_TIMEOUT,)))


SOFT_TIMEOUT = "The budget of this attempt is over; what is left of its lease is for ending in good order."


class NoTimeLeftError(JobsError):
    """The rest of the budget is too short for this call; nothing was sent."""


class EffectError(JobsError):
    """Base of what can go wrong with a side effect."""


class EffectChangedError(EffectError):
    """The same effect was asked for with another request while an earlier one may have been applied."""


class EffectKeyReusedError(EffectError):
    """Another job holds this business key in a way that a human must look at."""


class EffectsOpenError(EffectError):
    """The job cannot succeed while the outcome of an effect is open or a required one is rejected."""


class EffectNeedsReviewError(EffectError):
    """Whether the effect was applied cannot be found out by the program; a human decides."""


class PermanentError(JobsError):
    """Raised by a handler: trying again cannot help."""


class TransientError(JobsError):
    """Raised by a handler: trying again later can help."""

    def __init__(self, *args: object, retry_after: timedelta | None = None) -> None:
        super().__init__(*args)
        self.retry_after = retry_after


class RateLimited(TransientError):  # noqa: N818  a wish, not a fault
    """Raised by a handler: the downstream asks to come back after ``retry_after``."""

    def __init__(self, retry_after: timedelta, *args: object) -> None:
        super().__init__(*(args or ("rate limited",)), retry_after=retry_after)


class Snooze(JobsError):  # noqa: N818
    """Raised by a handler: run me again after ``delay``, from none to ten years; no budget is charged."""

    def __init__(self, delay: timedelta, *args: object) -> None:
        if not isinstance(delay, timedelta) or not timedelta(0) <= delay <= timedelta(days=3660):
            msg = f"Snooze takes a timedelta from 0 to 3660 days, not {delay!r}."
            raise DefinitionError(msg)
        super().__init__(*(args or ("snoozed",)))
        self.delay = delay


class EffectTooLateError(EffectError, PermanentError):
    """A first request was refused because the job was useful only until a time that has passed; nothing was sent."""


class JobCancelled(JobsError):  # noqa: N818
    """Raised inside a handler whose job somebody wants cancelled; or raised by a handler that cancels its own job."""


class EffectRejected(EffectError):  # noqa: N818
    """The provider refused; the effect is known not to have been applied: a business result."""

    def __init__(self, reason: str, *, status: int | None = None, provider_request_id: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.provider_request_id = provider_request_id


class EffectUncertain(EffectError):  # noqa: N818
    """The outcome is not known yet; the attempt ends ``snoozed`` and the next one asks first."""

    def __init__(self, reason: str, *, retry_at: object = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_at = retry_at


class KitError(JobsError):
    """The test kit was asked for something that a test cannot mean, or jobs did not come to rest; see the message."""
