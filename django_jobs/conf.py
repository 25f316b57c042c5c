"""The one settings dict ``DJANGO_JOBS``: typed defaults, their meaning, and what is wrong with a given value.

Keys are the upper-case field names of :class:`JobsSettings`. The settings page of the docs is generated from it.
"""

# ruff: noqa: RUF009  the defaults are fields with their documentation
from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cache
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from django_jobs.domain.canonical import DEEPEST, is_storable
from django_jobs.domain.durations import LONGEST
from django_jobs.domain.identity import check_name
from django_jobs.domain.lanes import check_resource
from django_jobs.domain.lease import OVERDUE_MARGIN, SOFT_LEAST
from django_jobs.domain.resources import parse_rate
from django_jobs.exceptions import DefinitionError, KeyFormatError


def _doc(default: Any, text: str) -> Any:
    return field(default=default, metadata={"doc": text})


def _seconds(value: float, text: str) -> Any:
    return field(default=timedelta(seconds=value), metadata={"doc": text})


def _days(value: float, text: str) -> Any:
    return field(default=timedelta(days=value), metadata={"doc": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsSettings:
    """Every setting with its default; the metadata text is the documentation."""

    namespace: str = _doc(
        "", "Part of every provider key. Empty: a UUID that the first migration stored, one per database."
    )
    code_version: str = _doc(
        "", "Written into every attempt. Empty: DJANGO_JOBS_CODE_VERSION, else a hash of the handler's source."
    )
    imports: tuple[str, ...] = _doc((), "Modules to import beside every app's jobs, tasks, events and schedules.")
    owners: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict,
        metadata={"doc": "Owner name to how to reach it, for example {'billing': {'email': […]}}."},
    )
    queues: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict,
        metadata={
            "doc": (
                "Queue name to its bounds, for example {'reports': {'limit': 2}}. limit: how many jobs of the queue "
                "run at once, over all workers. capacity: how many may wait before producers are refused."
            )
        },
    )
    resources: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict,
        metadata={
            "doc": (
                "What job types share (resource=) to its bounds, for example {'payments-api': {'limit': 3, 'rate': "
                "'100/m'}}. limit: how many jobs that use it run at once, over all queues and workers. rate: how many "
                "start per s, m, h or d. burst: so many of them at once after a rest; else what comes in a second."
            )
        },
    )
    email_backend: str = _doc(
        "django.core.mail.backends.smtp.EmailBackend",
        "The backend that really delivers when EMAIL_BACKEND is django_jobs.backends.email.EmailBackend.",
    )
    budget: timedelta = _seconds(60, "How long a handler may run without telling progress.")
    cleanup: timedelta = _seconds(10, "Added to the budget for the lease: time to end in good order.")
    soft_timeout: bool = _doc(
        False,
        "Whether a handler is told by SoftTimeoutError, raised inside it, that its budget is over, unless its job type "
        "declares soft_timeout=. Needs a CLEANUP of at least 3 seconds.",
    )
    key_ttl: timedelta = _seconds(7 * 86400, "How long an idempotency key lives after its job finished.")
    threads: int = _doc(4, "Handlers at once in one child process.")
    coroutines: int = _doc(
        16, "Coroutines at once on the event loop of one child process, beside its threads; 0: each takes a thread."
    )
    processes: int = _doc(1, "Child processes of one worker.")
    grace: timedelta = _seconds(30, "How long a stopping worker lets running handlers go on.")
    unknown_type_grace: timedelta = _seconds(
        3600, "How long a job is kept whose type and payload version no live worker knows, before it is dead-lettered."
    )
    poll: timedelta = _seconds(1, "The longest an idle worker waits before it looks again.")
    heartbeat: timedelta = _seconds(5, "How often a worker says that it lives.")
    silent_after: timedelta = _seconds(20, "A worker without a heartbeat for this long is taken for gone.")
    expired_patience: timedelta = _seconds(20, "How long after the end of a lease its holder may still finish.")
    blind_after: timedelta = _seconds(
        15,
        "A worker whose heartbeat or look for jobs has not succeeded for so long is blind; at least two heartbeats.",
    )
    stuck_after: timedelta = _seconds(
        30, "A child whose loop has not gone round for this long fails the liveness probe, if the database answers."
    )
    heartbeat_file: str = _doc(
        "", "Where a worker tells that it lives, for probes. Empty: nowhere. Each worker needs a file of its own."
    )
    reaper_tick: timedelta = _seconds(5, "How often a worker looks for jobs whose holder is gone.")
    max_call: timedelta = _seconds(10, "The longest one call to a provider may take; shorter than the grace.")
    payload_max_bytes: int = _doc(64 * 1024, "Largest canonical payload in bytes.")
    payload_max_depth: int = _doc(20, "Deepest nesting of a payload; at most 100.")
    result_max_bytes: int = _doc(64 * 1024, "Largest canonical result in bytes.")
    error_max_bytes: int = _doc(8 * 1024, "Longest stored message or traceback in bytes.")
    transaction_pooler: bool = _doc(
        False,
        "Say so when workers reach PostgreSQL through a pooler in transaction mode: nothing then depends on a session.",
    )
    keep_content: timedelta = _days(30, "How long finished jobs keep arguments, results and texts; for 'jobs prune'.")
    keep_dead_content: timedelta = _days(90, "The same for dead letters, counted from when they were settled.")
    keep_rows: timedelta = _days(400, "How long finished jobs keep their rows: attempts, effects, sends, the job.")
    keep_workers: timedelta = _days(30, "How long rows of workers are kept after their last heartbeat.")
    keep_events: timedelta = _days(
        90,
        "How long events are kept with their data, their deliveries and the keys of their subscribers' jobs, counted "
        "from when all deliveries were settled.",
    )
    keep_quarantine: timedelta = _days(90, "How long messages that were put aside are kept for a human.")
    notify: bool = _doc(
        True,
        "Wake idle workers by NOTIFY on PostgreSQL. A notification names a queue, or says that there are "
        "events, and is sent only while a worker sleeps. Without it, workers poll.",
    )
    listen_dsn: str = _doc(
        "",
        "How workers connect to hear notifications, as a libpq connection string: straight to the server of the jobs "
        "where their other connections go through a pooler in transaction mode. Empty: as they connect otherwise.",
    )
    source: str = _doc(
        "", "Which site publishes: the source of every event, a URI. Empty: urn:django: and the project's name."
    )
    destinations: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict,
        metadata={
            "doc": (
                "Where events go beside subscribers, for example {'crm': {'PUBLISHER': 'dotted.path.of.a.Publisher', "
                "'EVENTS': ['shop.order.paid:1']}}; further entries are passed to the publisher, in lower case."
            )
        },
    )
    event_max_bytes: int = _doc(64 * 1024, "Largest canonical data of an event in bytes; above it, give a dataref.")
    delivery_timeout: timedelta = _seconds(
        30, "The longest one batch of deliveries may take; a third of it later its dispatcher is taken for gone."
    )
    delivery_attempts: int = _doc(
        5, "So many refusals of one event by a destination make a dead delivery; outages do not count."
    )
    redact: tuple[str, ...] = _doc((), "Names of payload fields to mask, beside the built-in ones.")
    context: tuple[str, ...] = _doc(
        (),
        "Dotted paths of propagators: what jobs carry from the enqueue to the handler, for example the language.",
    )
    context_max_bytes: int = _doc(4 * 1024, "Largest canonical text in bytes of all that one job carries.")
    middleware: tuple[str, ...] = _doc(
        (), "Dotted paths of middleware around enqueues and attempts, the outermost first."
    )

    @property
    def blind_limit(self) -> timedelta:
        """How long a worker may go without a heartbeat before it is blind: one late beat alone does not make it so."""
        return max(self.blind_after, 2 * self.heartbeat)


QUEUE_KEYS = ("capacity", "limit")
RESOURCE_KEYS = ("limit", "rate", "burst")
EVENT_NAME = re.compile(r"[!-9;-~]+:[1-9][0-9]{0,8}")  # a type without spaces and colons, and its version
KEYS: dict[str, str] = {item.name.upper(): item.name for item in fields(JobsSettings)}


def problems(given: Mapping[str, Any]) -> list[str]:
    """Say in plain English what is wrong with a settings dict; an empty list means nothing is."""
    if not isinstance(given, Mapping):
        return [f"DJANGO_JOBS must be a dict, not {given!r}."]
    found = []
    defaults = JobsSettings()
    for key, value in given.items():
        if key not in KEYS:
            found.append(f"DJANGO_JOBS has no setting {key!r}.{_hint(str(key).upper(), KEYS)}")
            continue
        found.extend(_value_problems(key, value, getattr(defaults, KEYS[key])))
    return found or [
        *_queue_problems(given.get("QUEUES", {})),
        *_resource_problems(given.get("RESOURCES", {})),
        *_destination_problems(given.get("DESTINATIONS", {})),
        *_source_problems(given.get("SOURCE", "")),
        *_relation_problems(given),
    ]


def _hint(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {near[0]}?" if near else ""


def _queue_problems(queues: Mapping[Any, Mapping[Any, Any]]) -> list[str]:
    found = []
    for name, entry in queues.items():
        place = f"DJANGO_JOBS['QUEUES'][{name!r}]"
        try:
            check_name(name, what="queue name", limit=100)
        except KeyFormatError as error:
            found.append(f"{place}: {error}")
        for key, value in entry.items():
            if key not in QUEUE_KEYS:
                found.append(f"{place} has no entry {key!r}.{_hint(str(key).lower(), QUEUE_KEYS)}")
            elif not _is_count(value):
                found.append(f"{place}[{key!r}] must be a whole number of at least 1, not {value!r}.")
    return found


def _resource_problems(resources: Mapping[Any, Mapping[Any, Any]]) -> list[str]:
    found = []
    for name, entry in resources.items():
        place = f"DJANGO_JOBS['RESOURCES'][{name!r}]"
        try:
            check_resource(name)
        except KeyFormatError as error:
            found.append(f"{place}: {error}")
        for key, value in entry.items():
            if key not in RESOURCE_KEYS:
                found.append(f"{place} has no entry {key!r}.{_hint(str(key).lower(), RESOURCE_KEYS)}")
            elif key == "rate":
                found.extend(f"{place}['rate'] {why}." for why in _rate_problems(value))
            elif not _is_count(value):
                found.append(f"{place}[{key!r}] must be a whole number of at least 1, not {value!r}.")
        if "burst" in entry and "rate" not in entry:
            found.append(f"{place} has a burst, and no rate that it belongs to.")
    return found


def _rate_problems(value: object) -> list[str]:
    try:
        parse_rate(value)
    except ValueError as error:
        return [str(error)]
    return []


def _destination_problems(destinations: Mapping[Any, Mapping[Any, Any]]) -> list[str]:
    found = []
    for name, entry in destinations.items():
        place = f"DJANGO_JOBS['DESTINATIONS'][{name!r}]"
        try:
            if ":" in check_name(name, what="name of the destination", limit=100):
                found.append(f"{place}: the name may have no colon.")
        except KeyFormatError as error:
            found.append(f"{place}: {error}")
        wrong = [key for key in entry if not isinstance(key, str) or not key.isidentifier() or key != key.upper()]
        found.extend(f"{place} has the entry {key!r}; names are in upper case." for key in wrong)
        if not isinstance(entry.get("PUBLISHER"), str) or "." not in entry["PUBLISHER"]:
            found.append(f"{place}['PUBLISHER'] must be the dotted path of a class.")
        events = entry.get("EVENTS", ())
        if not _is_list_of_text(events) or not all(EVENT_NAME.fullmatch(event) for event in events):
            found.append(f"{place}['EVENTS'] must be a list of types with versions, such as 'shop.order.paid:1'.")
    return found


def _source_problems(source: str) -> list[str]:
    if not source:
        return []
    try:
        check_name(source, what="SOURCE", limit=200)
    except KeyFormatError as error:
        return [f"DJANGO_JOBS['SOURCE']: {error}"]
    return []


def _is_count(value: object, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _value_problems(key: str, value: Any, default: Any) -> list[str]:
    fits, wanted = _FITS_OF[key] if key in _FITS_OF else _FITS[type(default)]
    return [] if fits(value) else [f"DJANGO_JOBS[{key!r}] must be {wanted}, not {value!r}."]


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _is_dict_of_dicts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(entry, Mapping) for entry in value.values())


# By the type of the default: what a value must be, and how to say so.
_FITS: dict[type, tuple[Callable[[Any], bool], str]] = {
    timedelta: (
        lambda value: isinstance(value, timedelta) and timedelta(seconds=1) <= value <= LONGEST,
        f"a timedelta from one second to {LONGEST.days} days",
    ),
    bool: (lambda value: isinstance(value, bool), "True or False"),
    int: (_is_count, "a whole number of at least 1"),
    str: (lambda value: isinstance(value, str) and is_storable(value), "a string without NUL and lone surrogates"),
    tuple: (_is_list_of_text, "a list of strings"),
    dict: (_is_dict_of_dicts, "a dict of dicts"),
}


_FITS_OF: dict[str, tuple[Callable[[Any], bool], str]] = {
    "COROUTINES": (lambda value: _is_count(value, least=0), "a whole number of at least 0"),
    "PAYLOAD_MAX_DEPTH": (
        lambda value: _is_count(value) and value <= DEEPEST,
        f"a whole number from 1 to {DEEPEST}",
    ),
}


def _relation_problems(given: Mapping[str, Any]) -> list[str]:
    values = _build(given)
    found = []
    if values.silent_after < 2 * values.heartbeat:
        found.append("DJANGO_JOBS['SILENT_AFTER'] must be at least twice HEARTBEAT, or live workers look dead.")
    if values.max_call >= values.grace:
        found.append("DJANGO_JOBS['MAX_CALL'] must be shorter than GRACE, or a stop cuts calls to providers.")
    if values.soft_timeout and values.cleanup < OVERDUE_MARGIN + SOFT_LEAST:
        least = (OVERDUE_MARGIN + SOFT_LEAST).total_seconds()
        found.append(f"DJANGO_JOBS['CLEANUP'] must be at least {least:g} seconds with SOFT_TIMEOUT: time to heed it.")
    found.extend(
        f"DJANGO_JOBS['{name.upper()}'] must not be longer than KEEP_ROWS: content goes with the rows."
        for name in ("keep_content", "keep_dead_content")
        if getattr(values, name) > values.keep_rows
    )
    if values.keep_workers < 2 * values.silent_after:
        found.append("DJANGO_JOBS['KEEP_WORKERS'] must be at least twice SILENT_AFTER, or live workers lose theirs.")
    return found


def _build(given: Mapping[str, Any]) -> JobsSettings:
    values = {KEYS[key]: value for key, value in given.items()}
    for name in ("imports", "redact", "context", "middleware"):
        if name in values:
            values[name] = tuple(values[name])
    return JobsSettings(**values)


@cache
def get_settings() -> JobsSettings:
    """Return the settings in force.

    Raises:
        DefinitionError: The dict is wrong; the message lists every problem.
    """
    given = getattr(settings, "DJANGO_JOBS", {})
    wrong = problems(given)
    if wrong:
        raise DefinitionError(" ".join(wrong))
    return _build(given)


def _forget(*, setting: str, **_: object) -> None:
    if setting == "DJANGO_JOBS":
        get_settings.cache_clear()


setting_changed.connect(_forget, dispatch_uid="django_jobs.conf")
