"""Decisions of people: look, acknowledge, act, audit. The same for the admin, the command line and Python.

A decision shows its plan and the plan's digest. Submitting it gives the digest back: inside one transaction the rows
are locked, the plan is made again, and only an equal plan is carried out and recorded.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import telemetry
from django_jobs.domain.identity import canonical, fingerprint
from django_jobs.exceptions import (
    ActionChangedError,
    ActionOvertakenError,
    ActionRefusedError,
    OperatorError,
    RowBusyError,
)
from django_jobs.models import OperatorAction
from django_jobs.store.audit import record

REASON_CODES: dict[str, str] = {
    "code_fixed": "the code was fixed",
    "downstream_back": "a service that the job needs is back",
    "configuration": "a setting was wrong",
    "data_corrected": "the data was corrected",
    "checked_safe": "checked by hand, and safe",
    "other": "other",
}
REASON_MIN, REASON_LIMIT = 10, 2000
NAME_LIMIT = 100
PLAN_BYTES = 1024 * 1024
BUSY_AFTER = "1s"  # how long a decision waits for a row that a worker is committing
IDLE_FOR = "5s"  # how long a decision's transaction may stand still between two statements
_CHANGED = "This changed since you looked; nothing was done."
_STALE = (
    "This changed since the transaction began in which you decide; nothing was done. Look again in a new transaction."
)
_BUSY = ("55P03", "40P01", "40001")  # lock not available, deadlock, serialization failure: nothing was written
_OVERTAKEN = ("40001", "23505")  # serialization failure, unique violation: a snapshot that is older than the rows
_BUSY_SNAPSHOT = "SQLITE_BUSY_SNAPSHOT"  # the same on SQLite


class User(Protocol):
    """What is asked of the user of a site; Django's users are such."""

    def get_username(self) -> str:
        """Return the name that is recorded."""

    def has_perm(self, perm: str) -> bool:
        """Say whether the user holds a permission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Who decides, who answers for the outcome, and why.

    Args:
        actor: Who acts: the user name, or what ``--as`` says.
        owner: The person or team that answers for the outcome.
        reason: Why, in 10 to 2,000 signs.
        reason_code: One of ``REASON_CODES``.
        ticket: A reference, if there is one.
        user: The user of the site whose permission is asked again under the lock; None: the caller is trusted, as
            somebody with a shell on the server is.

    Raises:
        OperatorError: One of them is missing, too long or not known; the message says which.
    """

    actor: str
    owner: str
    reason: str
    reason_code: str = "other"
    ticket: str = ""
    user: User | None = None

    def __post_init__(self) -> None:
        check_text("operator", self.actor, least=1, most=150)
        check_text("owner", self.owner, least=1, most=NAME_LIMIT)
        check_text("reason", self.reason, least=REASON_MIN, most=REASON_LIMIT)
        check_text("ticket", self.ticket, least=0, most=NAME_LIMIT)
        if self.reason_code not in list(REASON_CODES):  # compared, not looked up: it may have no hash
            msg = f"The reason code must be one of {', '.join(REASON_CODES)}, not {self.reason_code!r}."
            raise OperatorError(msg)

    def check(self, permission: str) -> None:
        """Refuse a user without the permission.

        Raises:
            PermissionDenied: The user does not hold it.
        """
        if self.user is not None and not self.user.has_perm(f"django_jobs.{permission}"):
            msg = f"{self.actor} may not do this: the permission django_jobs.{permission} is missing."
            raise PermissionDenied(msg)


def check_text(what: str, value: object, *, least: int, most: int) -> None:
    """Refuse a text of an operator that is missing, too long, or that no database stores.

    Raises:
        OperatorError: The message says which text, and why.
    """
    if not isinstance(value, str) or len(value.strip()) < least:
        msg = f"The {what} needs at least {least} sign{'s' if least > 1 else ''}; got {value!r}."
        raise OperatorError(msg)
    if len(value) > most or "\x00" in value:
        msg = f"The {what} may have up to {most} signs and no NUL; this one has {len(value)}."
        raise OperatorError(msg)
    try:
        value.encode()
    except UnicodeEncodeError:
        msg = f"The {what} has a lone surrogate, which no database stores."
        raise OperatorError(msg) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """One thing that the operator has to say yes to: a box of a form, a line of the command's plan.

    With a ``reason_code`` it is asked of those alone who give this reason.
    """

    name: str
    label: str
    reason_code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a decision would do now; changes nothing.

    Args:
        action: The decision's name.
        title: The decision and its object, in words.
        refused: Why it cannot be done now; empty: it can.
        facts: All that the operator's yes depends on, as JSON values without payload; the digest is made of it.
        lines: What is said to people, beside the facts.
        acknowledge: What needs a yes of its own.
    """

    action: str
    title: str
    refused: str
    facts: Mapping[str, Any]
    lines: tuple[str, ...] = ()
    acknowledge: tuple[Acknowledgement, ...] = ()

    @property
    def text(self) -> str:
        """The facts as canonical JSON: what is recorded."""
        return canonical({"action": self.action, **self.facts}, max_bytes=PLAN_BYTES)

    @property
    def digest(self) -> str:
        """What an acknowledgement repeats."""
        return fingerprint(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The rows that a decision is about, for the audit."""

    job_id: uuid.UUID | None = None
    effect_id: uuid.UUID | None = None
    event_id: uuid.UUID | None = None
    delivery_id: uuid.UUID | None = None
    request_id: uuid.UUID | None = None
    from_state: str = ""
    from_revision: int | None = None
    from_generation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A decision that was carried out: its audit row, what is said about it, and what it made."""

    action: OperatorAction
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)


class Decision(ABC):
    """One decision about one object. A subclass says how to lock, plan and act; this class keeps the order.

    ``name`` is the audit's word and the command's verb; ``permission`` the codename (without the app) that it needs.
    """

    name: ClassVar[str]
    permission: ClassVar[str]

    def __init__(self, *, using: str) -> None:
        self.using = using

    @abstractmethod
    def plan(self) -> Plan:
        """Say what this decision would do now; reads only.

        Raises:
            LookupError: The object does not exist.
        """

    @abstractmethod
    def lock(self) -> None:
        """Lock the rows that the plan depends on, in key order, the job first."""

    @abstractmethod
    def target(self) -> Target:
        """Return the rows that this decision is about, as they are before it."""

    @abstractmethod
    def act(self, operator: Operator, action_id: uuid.UUID) -> tuple[str, Mapping[str, Any]]:
        """Carry it out inside the open transaction; returns what is said about it, and details.

        Raises:
            ActionChangedError: A guarded statement changed no row.
        """

    def more_permissions(self) -> tuple[str, ...]:
        """Return further permissions (with their app) that this object needs, such as a job type's own."""
        return ()

    def submit(self, operator: Operator, *, digest: str) -> Done:
        """Carry out what was acknowledged, and record it in the same transaction.

        Args:
            operator: Who, for whom and why.
            digest: The digest of the plan that the operator saw.

        Raises:
            PermissionDenied: The operator's user lacks a permission; nothing was written.
            ActionRefusedError: It cannot be done now; its ``plan`` says why.
            ActionChangedError: What was acknowledged is not what is there now; its ``plan`` is the present one. If it
                cannot be done now either, the error is an ActionRefusedError too.
            RowBusyError: A worker is committing the job; nothing was written, try again.
        """
        with _bounded(self.using):
            self.lock()
            self.check(operator)
            plan = self.plan()
            seen = hmac.compare_digest(plan.digest.encode(), str(digest).encode("utf-8", "replace"))
            if not seen and plan.refused:
                raise ActionOvertakenError(f"{_CHANGED} Now: {plan.refused}", plan=plan)
            if plan.refused:
                raise ActionRefusedError(plan.refused, plan=plan)
            if not seen:
                raise ActionChangedError(f"{_CHANGED} Look at the present plan and decide again.", plan=plan)
            return self._carry_out(operator, plan)

    def check(self, operator: Operator) -> None:
        """Ask for every permission that this needs.

        Raises:
            PermissionDenied: One is missing.
        """
        operator.check(self.permission)
        for name in self.more_permissions():
            if operator.user is not None and not operator.user.has_perm(name):
                msg = f"{operator.actor} may not do this: the permission {name} is missing."
                raise PermissionDenied(msg)

    def _carry_out(self, operator: Operator, plan: Plan) -> Done:
        target = self.target()
        row = record(
            action=self.name,
            actor=operator.actor,
            owner=operator.owner,
            reason_code=operator.reason_code,
            reason=operator.reason,
            ticket=operator.ticket,
            digest=plan.digest,
            plan=plan.text,
            target={name: getattr(target, name) for name in target.__slots__},
            using=self.using,
        )
        message, details = self.act(operator, row.pk)
        tell = functools.partial(
            telemetry.emit, f"operator.{self.name}", actor=operator.actor, job_id=target.job_id, action_id=row.pk
        )
        transaction.on_commit(tell, using=self.using)
        return Done(action=row, message=message, details=details)


@contextlib.contextmanager
def _bounded(using: str) -> Iterator[None]:
    """Open the transaction of a decision; a row that a worker holds is waited for no longer than a second.

    Inside a caller's transaction the rows may be those of an older snapshot. Whoever changes what a plan depends on
    changes a row that the decision locks, too, or is found by a unique index: then the database refuses.
    """
    connection = connections[using]
    outermost = not connection.in_atomic_block
    try:
        with transaction.atomic(using=using), _impatient(connection, outermost=outermost):
            yield
    except (OperationalError, IntegrityError) as error:
        state = getattr(error.__cause__, "sqlstate", "")
        name = getattr(error.__cause__, "sqlite_errorname", "")
        if not outermost and (state in _OVERTAKEN or name == _BUSY_SNAPSHOT):
            raise ActionChangedError(_STALE) from error
        if state in _BUSY or "locked" in str(error):
            msg = "A worker is committing this job just now; nothing was done. Try again in a moment."
            raise RowBusyError(msg) from error
        raise


@contextlib.contextmanager
def _impatient(connection: BaseDatabaseWrapper, *, outermost: bool) -> Iterator[None]:
    """Let no statement of the block wait for a row longer than ``BUSY_AFTER``; a caller gets its own limit back."""
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        if outermost:  # a plan made under the lock must see what was committed before it
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            # A web process that stands still here must not keep a job from its worker.
            cursor.execute("SELECT set_config('idle_in_transaction_session_timeout', %s, true)", [IDLE_FOR])
        cursor.execute("SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s, true)", [BUSY_AFTER])
        before = cursor.fetchone()[0]
    yield
    if not outermost:
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [before])
