"""What a handler holds: its effects, its completion, its steps and its progress."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from django.db import connections

from django_jobs import clock, faults
from django_jobs.conf import get_settings
from django_jobs.domain.identity import canonical, check_name
from django_jobs.domain.lease import may_renew
from django_jobs.domain.providers import Confirmed
from django_jobs.effects.record import perform
from django_jobs.enqueue.inside import InsideJob, in_transaction
from django_jobs.exceptions import DefinitionError, EffectError, PayloadError
from django_jobs.outbox.emit import store_held_back
from django_jobs.store import renew, succeed
from django_jobs.store.adoptions import recheck_adopted
from django_jobs.store.completion import finished_step, lock_for_completion, remember_step
from django_jobs.worker.async_context import AsyncTwins, refuse_on_loop
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.commit import check_transaction, one_transaction
from django_jobs.worker.connection import LOST, drop
from django_jobs.worker.following import enqueue_following
from django_jobs.worker.outage import outage

T = TypeVar("T")


class Completion:
    """What ``complete()`` yields; ``result`` is stored with the success."""

    def __init__(self) -> None:
        self.result: Any = None


class Step:
    """A step while it is open: ``stored`` is the JSON text of its result once it has finished."""

    def __init__(self, stored: str | None) -> None:
        self.stored = stored
        self.value: Any = None

    @property
    def result(self) -> Any:
        """The result, as JSON gives it back."""
        return json.loads(self.stored or "null")


def encode_result(value: Any, job_type: str) -> str | None:
    """Write a handler's result as canonical JSON; None for no result.

    Raises:
        PayloadError: It cannot be stored.
    """
    if value is None:
        return None
    try:
        return canonical(value, max_bytes=get_settings().result_max_bytes)
    except PayloadError as error:
        msg = f"The result of {job_type} cannot be stored: {error}"
        raise PayloadError(msg) from error


STEP_AGAIN = (
    "This attempt has had a step {!r} already, so this one would be left out as if it had run. In a loop, put the id "
    "of what each step is about into its name."
)
EFFECT_AGAIN = (
    "This attempt has had the effect {!r} already, so this one would be left out as if it had been sent. In a loop, "
    "pass key= with the id of what each effect is about."
)


class JobContext(AsyncTwins):
    """The handler's side of one attempt. It refuses further use once the attempt has ended."""

    def __init__(self, attempt: RunningAttempt, inside: InsideJob) -> None:
        self._attempt = attempt
        self._inside = inside
        self._steps: set[str] = set()  # that this attempt has run, or found to have run
        self._effects: set[str] = set()  # that this attempt has confirmed, or found to be, under the job's own id

    @property
    def job_id(self) -> uuid.UUID:
        """The job's id: the same over all attempts and replays."""
        return self._attempt.job_id

    @property
    def database(self) -> str:
        """The alias of the database that holds the job, and in which ``complete()`` and ``step()`` commit."""
        return self._attempt.using

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._attempt.number

    @property
    def key(self) -> str:
        """The job's idempotency key; empty without one."""
        return self._attempt.claimed.key

    @property
    def remaining(self) -> timedelta:
        """What is left of the budget."""
        return self._attempt.remaining

    @property
    def cancelled(self) -> bool:
        """Whether going on is pointless: this attempt was taken back, or somebody wants the job cancelled.

        A request is heard within about a second. A handler that goes on and completes was faster.
        """
        return bool(self._attempt.revoked) or self._attempt.cancel_requested

    def effect(
        self,
        name: str,
        operation: Any,
        *,
        key: str | None = None,
        required: bool = True,
        on_ambiguous: str = "review",
        **request: Any,
    ) -> Confirmed:
        """Do something to the world at most once: recorded before, reconciled after a crash, never sent twice blindly.

        Args:
            name: What the effect is called within the job.
            operation: A function with ``@effect``, or an object with the adapter's methods.
            key: What the effect means to the business, for example ``order:7``; default: the job's id.
            required: Whether the job may not succeed when the provider refuses.
            on_ambiguous: What to do when nobody can say whether it was applied: "review", "resend" or "accept".
            **request: The operation's arguments.

        Returns:
            The confirmed outcome, also one of an earlier attempt.

        Raises:
            EffectError: This attempt has had an effect of that name and no key, or a transaction is open.
            EffectRejected: The provider refused; known not applied.
            EffectUncertain: Not known yet; let it pass, and the next attempt asks first.
            EffectNeedsReviewError: Only a human can find out.
            JobCancelled: Somebody wants the job cancelled, and no earlier send is unclear; nothing was sent.
            SoftTimeoutError: The budget is over, the job type asks to be told, and it was not told yet.
        """
        refuse_on_loop("effect")
        self._attempt.check_open()
        self._attempt.check_budget()
        if self._inside.commits_with_success or in_transaction(connections[self._attempt.using]):
            msg = (
                f"The effect {name!r} is asked for inside a transaction; a rollback would forget that it was sent. Ask "
                "before complete(), step() or atomic()."
            )
            raise EffectError(msg)
        if key is None and name in self._effects:
            raise EffectError(EFFECT_AGAIN.format(name))
        confirmed = perform(
            self._attempt, name, operation, key=key, required=required, on_ambiguous=on_ambiguous, request=request
        )
        if key is None:
            self._effects.add(name)
        return confirmed

    @contextmanager
    def complete(self) -> Iterator[Completion]:
        """Open the one transaction in which business rows, events and the success of the job commit together.

        Raises:
            LeaseLostError: The job belongs to somebody else by now; nothing was written.
            CommitLostError: The reply to COMMIT was lost, and it did not happen.
            EffectsOpenError: The outcome of an effect is open.
            JobCancelled: Somebody wants the job cancelled; raised before the block is entered.
        """
        refuse_on_loop("complete")
        done = Completion()
        with self._own_transaction("complete"):
            yield done
            check_transaction(self._attempt)
            recheck_adopted(self._attempt)
            store_held_back(self._inside)
            result = encode_result(done.result, self._attempt.claimed.job_type)
            succeed(self._attempt, result=result, budget=self._attempt.definition.terms.budget)
            enqueue_following(self._attempt, result)

    def step(self, name: str, function: Callable[[], T]) -> T:
        """Run ``function`` in a transaction with a record that it ran; a later attempt gets its stored result.

        Returns:
            The result, as JSON gives it back.

        Raises:
            LeaseLostError: The job belongs to somebody else by now; nothing was written.
            JobCancelled: Somebody wants the job cancelled; the step did not begin.
            SoftTimeoutError: As for ``effect()``; the step did not begin.
        """
        refuse_on_loop("step")
        with self.open_step(name) as step:
            if step.stored is None:
                step.value = function()
        result: T = step.result
        return result

    @contextmanager
    def open_step(self, name: str) -> Iterator[Step]:
        """Open the transaction of a step that has not finished; what the block leaves as its value is stored.

        Raises:
            DefinitionError: This attempt has had a step of that name: what is to be done now would be left out.
        """
        check_name(name, what="step name", limit=200)
        if name in self._steps:
            raise DefinitionError(STEP_AGAIN.format(name))
        self._attempt.check_open()
        self._attempt.check_wanted()
        self._attempt.check_budget()
        step = Step(finished_step(self._attempt, name))
        if step.stored is not None:
            self._steps.add(name)
            yield step
            return
        with self._own_transaction("step", step=name):
            step.stored = finished_step(self._attempt, name)
            yield step
            if step.stored is None:
                step.stored = encode_result(step.value, f"step {name}") or "null"
                check_transaction(self._attempt)
                store_held_back(self._inside)
                remember_step(self._attempt, name, step.stored)
        self._steps.add(name)

    def progress(self, value: int, total: int | None = None) -> None:
        """Tell measurable progress: a number that grows renews the lease, at most four times per lease.

        Raises:
            LeaseLostError: The job belongs to somebody else by now.
            JobCancelled: Somebody wants the job cancelled.
            SoftTimeoutError: As for ``effect()``; nothing was renewed.
        """
        refuse_on_loop("progress")
        self._attempt.check_open()
        self._attempt.check_wanted()
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
            msg = f"progress() takes a whole number from 0 on that grows, not {value!r}."
            raise DefinitionError(msg)
        if total is not None and (isinstance(total, bool) or not isinstance(total, int) or not 0 <= total < 2**63):
            msg = f"The total of progress() is a whole number from 0 on, or None, not {total!r}."
            raise DefinitionError(msg)
        attempt = self._attempt
        attempt.check_budget()
        faults.reached("handler.progress", using=attempt.using)
        early = clock.boot_seconds() - attempt.renewed_at < attempt.definition.terms.progress_interval.total_seconds()
        if not may_renew(attempt.progress, value) or (early and attempt.progress is not None):
            return
        if self._inside.commits_with_success or in_transaction(connections[attempt.using]):
            return  # written inside a transaction it would renew nothing until the commit, and might be rolled back
        asked = clock.boot_seconds()
        try:
            renew(attempt, progress=value, total=total, lease=attempt.definition.terms.lease, ends_at=attempt.ends_at)
        except LOST as error:  # perhaps not renewed; the lease still holds, and the next growth tries again
            drop(attempt.using)
            outage.failed(error)
            attempt.progress = value
            return
        attempt.progress, attempt.renewed_at = value, asked

    @contextmanager
    def _own_transaction(self, operation: str, *, step: str | None = None) -> Iterator[None]:
        attempt, inside = self._attempt, self._inside
        attempt.check_open()
        attempt.check_wanted()
        if in_transaction(connections[attempt.using]):
            msg = f"{operation}() opens the outermost transaction itself; call it outside of atomic()."
            raise DefinitionError(msg)
        with attempt.undisturbed(), one_transaction(attempt, operation=f"{operation}()", step=step):
            lock_for_completion(attempt, idle=attempt.lease_remaining, operation=operation)
            inside.commits_with_success, inside.held_back = True, []
            try:
                yield
            finally:
                inside.commits_with_success, inside.held_back = False, None
