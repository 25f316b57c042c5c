"""What a producer may decide about one enqueue, apart from the arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from django_jobs.domain.durations import LONGEST
from django_jobs.domain.identity import check_key, check_name, scope_text
from django_jobs.domain.lanes import check_resource
from django_jobs.exceptions import DefinitionError

OnDuplicate = Literal["return", "reject"]
SerialOnDead = Literal["block", "skip"]
Upcast = Callable[[int, Mapping[str, Any]], dict[str, Any]]  # a version and its arguments → the present ones, bound
Fits = Callable[[Mapping[str, Any], str], None]  # bound arguments and their text; raises PayloadError
LONGEST_WAIT = LONGEST
SCOPE_LIMIT = 300
VERSION_BOUND = 2**31  # of the column that keeps the version of a payload, or of an event
SERIAL_LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueOptions:
    """Everything that a job type declares for its jobs, and that ``using`` may change for one of them."""

    job_type: str
    version: int
    queue_name: str
    priority: int
    key: str | None
    key_scope: str
    key_ttl: timedelta
    on_duplicate: OnDuplicate
    subject: str
    owner: str
    useful_for: timedelta | None
    tenant: str = ""
    resource: str = ""
    serial_key: str = ""
    serial_on_dead: SerialOnDead = "block"
    upcast: Upcast | None = None
    fits: Fits | None = None
    run_after: datetime | timedelta | None = None
    database: str | None = None
    detached: bool = False
    literal: frozenset[str] = frozenset()  # of "key", "subject" and "serial_key": given for one job, so no template

    def changed(self, **changes: Any) -> EnqueueOptions:
        """Return a checked copy.

        Raises:
            DefinitionError: A name is unknown or a value cannot work.
        """
        unknown = sorted(set(changes) - USING)
        if unknown:
            msg = f"using() has no option {unknown[0]!r}; it takes {', '.join(sorted(USING))}."
            raise DefinitionError(msg)
        literal = self.literal | ({"key", "subject", "serial_key"} & set(changes))
        options = replace(self, **changes, literal=literal)
        check(options)
        return options


USING = frozenset(
    {"key", "run_after", "priority", "queue_name", "database", "tenant", "subject", "detached", "serial_key"}
)


def check(options: EnqueueOptions) -> None:
    """Refuse what cannot work, before any SQL and alike on every database.

    Raises:
        DefinitionError: The message names the option and the mend.
        KeyFormatError: A key or name is empty, too long or not printable ASCII.
    """
    check_name(options.job_type, what="job type", limit=200)
    check_name(options.queue_name, what="queue_name", limit=100)
    _check_names(options)
    if isinstance(options.priority, bool) or not isinstance(options.priority, int) or abs(options.priority) > 100:
        msg = f"priority must be a whole number from -100 to 100 (bigger first), not {options.priority!r}."
        raise DefinitionError(msg)
    if not isinstance(options.detached, bool):
        msg = f"detached must be True or False, not {options.detached!r}."
        raise DefinitionError(msg)
    _check_times(options)


def _check_names(options: EnqueueOptions) -> None:
    for what, value, limit in (
        ("tenant", options.tenant, 64),
        ("owner", options.owner, 100),
        ("subject", options.subject, 200),
        ("serial_key", options.serial_key, SERIAL_LIMIT),
        ("database", "" if options.database is None else options.database, 255),
    ):
        if value != "":
            check_name(value, what=what, limit=limit)
    if options.resource != "":
        check_resource(options.resource)
    if options.serial_on_dead not in ("block", "skip"):  # compared, not looked up: it may have no hash
        msg = f'serial_on_dead must be "block" or "skip", not {options.serial_on_dead!r}.'
        raise DefinitionError(msg)
    check_name(options.key_scope, what="key_scope", limit=200)
    if options.key is not None:
        check_key(options.key)
        check_name(scope_text(options.tenant, options.key_scope), what="key_scope with its tenant", limit=SCOPE_LIMIT)


def _check_times(options: EnqueueOptions) -> None:
    after = options.run_after
    if isinstance(after, datetime):
        if not _names_instant(after):
            msg = f"run_after must be an aware datetime in the range of UTC (else it names no instant), not {after!r}."
            raise DefinitionError(msg)
    elif after is not None and (not isinstance(after, timedelta) or not timedelta(0) <= after <= LONGEST_WAIT):
        msg = f"run_after must be an aware datetime or a timedelta from 0 to {LONGEST_WAIT.days} days, not {after!r}."
        raise DefinitionError(msg)
    for what, value in (("key_ttl", options.key_ttl), ("useful_for", options.useful_for)):
        if value is None and what == "useful_for":
            continue
        if not isinstance(value, timedelta) or not timedelta(seconds=1) <= value <= LONGEST_WAIT:
            msg = f"{what} must be a timedelta from one second to {LONGEST_WAIT.days} days, not {value!r}."
            raise DefinitionError(msg)


def _names_instant(value: datetime) -> bool:
    if value.utcoffset() is None:
        return False
    try:
        value.astimezone(UTC)
    except OverflowError:
        return False
    return True
