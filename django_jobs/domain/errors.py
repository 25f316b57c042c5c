"""What an exception says about trying again.

A policy's own lists come first, then the package's errors, then a default table. Exceptions of Django, database drivers
and network clients are recognised by qualified name, so that none of them is imported. Causes are not followed: what a
handler raises is its answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django_jobs import exceptions
from django_jobs.domain import downstream
from django_jobs.domain.record import MEMBERS_OF, ErrorRecord, describe
from django_jobs.domain.retry import RetryPolicy
from django_jobs.domain.states import DeadReason, ErrorClass

__all__ = ["Classified", "ErrorRecord", "classify", "describe", "wish"]

_P, _T, _U = ErrorClass.PERMANENT, ErrorClass.TRANSIENT, ErrorClass.UNKNOWN

# Errors of the package that say more than "unknown"; the most specific class decides.
_OWN: dict[type[exceptions.JobsError], tuple[ErrorClass, DeadReason]] = {
    exceptions.PermanentError: (_P, DeadReason.PERMANENT),
    exceptions.DefinitionError: (_P, DeadReason.PERMANENT),
    exceptions.PayloadError: (_P, DeadReason.PAYLOAD),
    exceptions.IdempotencyConflictError: (_P, DeadReason.PERMANENT),
    exceptions.DuplicateJobError: (_P, DeadReason.PERMANENT),
    exceptions.EffectChangedError: (_P, DeadReason.EFFECT_REVIEW),
    exceptions.EffectKeyReusedError: (_P, DeadReason.EFFECT_REVIEW),
    exceptions.EffectNeedsReviewError: (_P, DeadReason.EFFECT_REVIEW),
    exceptions.EffectTooLateError: (_P, DeadReason.EXPIRED),
    exceptions.TransientError: (_T, DeadReason.PERMANENT),
    exceptions.QueueFullError: (_T, DeadReason.PERMANENT),
    exceptions.EnqueueContendedError: (_T, DeadReason.PERMANENT),
    exceptions.CommitLostError: (_T, DeadReason.PERMANENT),
    exceptions.NoTimeLeftError: (_T, DeadReason.PERMANENT),
    exceptions.EffectUncertain: (_T, DeadReason.PERMANENT),
}

_BY_NAME: dict[str, ErrorClass] = {
    "django.core.exceptions.ObjectDoesNotExist": _P,
    "django.core.exceptions.ValidationError": _P,
    "django.core.exceptions.PermissionDenied": _P,
    "django.http.response.Http404": _P,
    "builtins.ConnectionError": _T,
    "builtins.TimeoutError": _T,
    "socket.gaierror": _T,
    "http.client.RemoteDisconnected": _T,
    "smtplib.SMTPServerDisconnected": _T,
    "django.db.utils.OperationalError": _T,
    "django.db.utils.InterfaceError": _T,
    "psycopg.OperationalError": _T,
    "psycopg.InterfaceError": _T,
    "psycopg2.OperationalError": _T,
    "psycopg2.InterfaceError": _T,
    "sqlite3.OperationalError": _T,
    "sqlite3.InterfaceError": _T,
    "httpx.TimeoutException": _T,
    "httpx.NetworkError": _T,
    "httpx.RemoteProtocolError": _T,
    "requests.exceptions.ConnectionError": _T,
    "requests.exceptions.Timeout": _T,
    "urllib3.exceptions.TimeoutError": _T,
    "urllib3.exceptions.ProtocolError": _T,
    "aiohttp.client_exceptions.ClientConnectionError": _T,
    "redis.exceptions.ConnectionError": _T,
    "redis.exceptions.TimeoutError": _T,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    """The class of an error, how long the other side asks to wait, and in plain words why.

    ``dead_reason`` names the dead letter if the class is permanent.
    """

    error_class: ErrorClass
    retry_after: timedelta | None = None
    reason: str
    dead_reason: DeadReason = DeadReason.PERMANENT


def classify(error: BaseException, policy: RetryPolicy, *, now: datetime | None = None) -> Classified:
    """Return what ``error`` says about trying again; an HTTP date is compared with ``now`` (default: the clock).

    A group of exceptions is classed by its members at any depth, unless the policy names the group's own type:
    permanent only if all are, unknown if any is, else transient. Members that ask to be run later (``Snooze``) have no
    say beside others. Never raises: an error whose class or properties raise when they are looked at is unknown.
    """
    try:
        return _classify(error, policy, now or datetime.now(UTC))
    except BaseException:  # noqa: BLE001  foreign code: a metaclass, a property, the check of a declared type
        return Classified(error_class=_U, reason="the error raises another one when it is looked at, so nobody knows")


def wish(error: BaseException) -> exceptions.Snooze | exceptions.EffectUncertain | exceptions.JobCancelled | None:
    """Return what an error, or a group in which every member says the same, asks for instead of counting as a failure.

    Of several the one with the longest delay, or the latest time, speaks for all.
    """
    leaves = list(_members(error))  # asks the interpreter alone, whatever the classes say about themselves
    if all(issubclass(type(leaf), exceptions.Snooze) for leaf in leaves):
        snoozes = [leaf for leaf in leaves if isinstance(leaf, exceptions.Snooze)]
        return max(snoozes, key=_delay, default=None)
    if all(issubclass(type(leaf), exceptions.EffectUncertain) for leaf in leaves):
        uncertain = [leaf for leaf in leaves if isinstance(leaf, exceptions.EffectUncertain)]
        return max(uncertain, key=_retry_at, default=None)
    cancelled = [leaf for leaf in leaves if issubclass(type(leaf), exceptions.JobCancelled)]
    if len(cancelled) == len(leaves):
        return next((leaf for leaf in cancelled if isinstance(leaf, exceptions.JobCancelled)), None)
    return None


def _delay(error: exceptions.Snooze) -> timedelta:
    return error.delay if isinstance(error.delay, timedelta) else timedelta(0)


def _retry_at(error: exceptions.EffectUncertain) -> datetime:
    at = error.retry_at
    return at if isinstance(at, datetime) and at.tzinfo is not None else datetime.min.replace(tzinfo=UTC)


def _classify(error: BaseException, policy: RetryPolicy, now: datetime) -> Classified:
    declared = _declared(error, policy, now)
    if declared is not None:
        return declared
    if issubclass(type(error), BaseExceptionGroup):
        leaves = list(_members(error))
        judging = [leaf for leaf in leaves if not isinstance(leaf, exceptions.Snooze)] or leaves
        return _worst([_single(member, policy, now) for member in judging])
    return _single(error, policy, now)


def _single(error: BaseException, policy: RetryPolicy, now: datetime) -> Classified:
    return _declared(error, policy, now) or _own(error) or _answered(error, now) or _named(error, now)


def _declared(error: BaseException, policy: RetryPolicy, now: datetime) -> Classified | None:
    name = type(error).__name__
    if policy.permanent and isinstance(error, policy.permanent):
        return Classified(error_class=_P, reason=f"{name} is declared permanent by the retry policy")
    if policy.transient and isinstance(error, policy.transient):
        wish = _wish(error) or downstream.retry_after(error, now=now)
        return Classified(error_class=_T, retry_after=wish, reason=f"{name} is declared transient by the retry policy")
    return None


def _own(error: BaseException) -> Classified | None:
    if not isinstance(error, exceptions.JobsError):
        return None
    if isinstance(error, exceptions.EffectRejected):
        return _rejected(error)
    for kind in type(error).__mro__:
        if kind in _OWN:
            error_class, dead_reason = _OWN[kind]
            return Classified(
                error_class=error_class,
                retry_after=_wish(error) if error_class is _T else None,
                reason=f"{kind.__name__} is {error_class}",
                dead_reason=dead_reason,
            )
    return Classified(error_class=_U, reason=f"{type(error).__name__} says nothing about trying again")


def _rejected(error: exceptions.EffectRejected) -> Classified:
    """A refusal that the handler did not catch: a busy provider may be asked again, any other answer is final."""
    passing = error.status is not None and downstream.http_class(error.status) is _T
    return Classified(
        error_class=_T if passing else _P,
        retry_after=_wish(error) if passing else None,
        reason=f"the provider rejected the effect{f' with status {error.status}' if error.status else ''}",
    )


def _answered(error: BaseException, now: datetime) -> Classified | None:
    status = downstream.http_status(error)
    if status is not None:
        wish = downstream.retry_after(error, now=now)
        return Classified(error_class=downstream.http_class(status), retry_after=wish, reason=f"HTTP status {status}")
    replies = downstream.smtp_replies(error)
    if replies:
        reason = f"SMTP reply {', '.join(map(str, replies))}"
        return Classified(error_class=downstream.smtp_class(replies), reason=reason)
    return None


def _named(error: BaseException, now: datetime) -> Classified:
    for name in downstream.qualified_names(error):
        if name in _BY_NAME:
            return Classified(error_class=_BY_NAME[name], reason=f"{name} is {_BY_NAME[name]} by default")
    behind = downstream.attribute(error, "reason") if _is_url_error(error) else None
    if isinstance(behind, BaseException) and not _is_url_error(behind):
        return _named(behind, now)
    return Classified(error_class=_U, reason=f"{type(error).__name__} is in no list, so nobody knows")


def _is_url_error(error: BaseException) -> bool:
    return "urllib.error.URLError" in downstream.qualified_names(error)


def _wish(error: BaseException) -> timedelta | None:
    """Return the ``retry_after`` that an error of the package, or one shaped like it, carries; never negative."""
    wish = downstream.attribute(error, "retry_after")
    return wish if isinstance(wish, timedelta) and wish >= timedelta(0) else None


def _members(group: BaseException) -> Iterator[BaseException]:
    """Yield the leaves of a group, or the error itself; groups can be nested deeper than the stack."""
    waiting: list[BaseException] = [group]
    while waiting:
        error = waiting.pop()
        if issubclass(type(error), BaseExceptionGroup):
            waiting.extend(reversed(MEMBERS_OF.__get__(error)))
        else:
            yield error


def _worst(members: list[Classified]) -> Classified:
    classes = {member.error_class for member in members}
    worst = _U if _U in classes else _P if classes == {_P} else _T
    chosen = next(member for member in members if member.error_class is worst)
    wishes = [member.retry_after for member in members if member.retry_after is not None]
    return Classified(
        error_class=worst,
        retry_after=max(wishes, default=None) if worst is not _P else None,
        reason=f"of {len(members)} errors in a group: {chosen.reason}",
        dead_reason=chosen.dead_reason,
    )
