"""The ``@job`` decorator."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, overload

from django.apps import apps
from django.core.exceptions import AppRegistryNotReady

from django_jobs.conf import get_settings
from django_jobs.define.definition import DurableJob, EventSource, JobDefinition, check_definition, lease_terms
from django_jobs.define.module_runs import module_run
from django_jobs.define.registry import register
from django_jobs.define.schedules import Place, declare_schedule
from django_jobs.domain.identity import check_name
from django_jobs.domain.lease import LeaseTerms, check_soft
from django_jobs.domain.options import VERSION_BOUND, EnqueueOptions, OnDuplicate, SerialOnDead, check
from django_jobs.domain.retry import RetryPolicy
from django_jobs.domain.schedules import Cron, Every
from django_jobs.domain.upcasting import Upcaster, checked_upcasters
from django_jobs.exceptions import DefinitionError

P = ParamSpec("P")
R = TypeVar("R")


@overload
def job(function: Callable[P, R], /) -> DurableJob[P, R]: ...


@overload
def job(
    *,
    type: str | None = None,
    version: int = 1,
    aliases: tuple[str, ...] = (),
    queue_name: str = "default",
    priority: int = 0,
    key: str | None = None,
    key_scope: str | None = None,
    key_ttl: timedelta | None = None,
    on_duplicate: OnDuplicate = "return",
    subject: str = "",
    owner: str = "",
    budget: timedelta | None = None,
    cleanup: timedelta | None = None,
    max_runtime: timedelta | None = None,
    retry: RetryPolicy | None = None,
    useful_for: timedelta | None = None,
    takes_context: bool = False,
    atomic: bool | None = None,
    soft_timeout: bool | None = None,
    replay_permission: str = "",
    schedule: Cron | Every | str | None = None,
    resource: str = "",
    serial_key: str = "",
    serial_on_dead: SerialOnDead = "block",
    upcasters: Mapping[int, Upcaster] | None = None,
) -> Callable[[Callable[P, R]], DurableJob[P, R]]: ...


def job(function: Callable[..., Any] | None = None, /, **declared: Any) -> Any:
    """Declare a function as the handler of a job type.

    Bare ``@job`` names the type after the app and the function, and runs it in one transaction with its success.

    Args:
        function: The handler, when the decorator is used bare.
        **declared: ``type`` (stored name), ``version`` (of the payload), ``aliases`` (older names, newest first),
            ``queue_name``, ``priority`` (-100…100, bigger first), ``key`` (template such as "order:{order_id}"; without
            it nothing is deduplicated), ``key_scope`` (whose keys are the same; default: the oldest name, so that a
            rename keeps it), ``key_ttl``, ``on_duplicate`` ("return" or "reject"), ``subject`` (template), ``owner``,
            ``budget``, ``cleanup``, ``max_runtime``, ``retry``, ``useful_for``, ``takes_context``, ``atomic``,
            ``soft_timeout`` (whether SoftTimeoutError is raised inside the handler when its budget is over; default:
            the setting), ``replay_permission`` (what a user needs besides to replay such a job, as
            "billing.replay_charges"),
            ``schedule`` (when it is enqueued by itself: a ``Cron``, an ``Every`` or a cron expression),
            ``resource`` (what its jobs share with those of other types, bounded in ``DJANGO_JOBS["RESOURCES"]``),
            ``serial_key`` (template: jobs of one key run one after the other), ``serial_on_dead`` ("block" or "skip"),
            ``upcasters`` (by older payload version: what makes of its arguments those of the next version).

    Raises:
        DefinitionError: The declaration cannot work; the message says why.
        KeyFormatError: A name is empty, too long or not printable ASCII.
    """
    if function is not None:
        return declare(function, **declared)

    def decorate(func: Callable[..., Any]) -> DurableJob[..., Any]:
        return declare(func, **declared)

    return decorate


_ALLOWED = frozenset(
    [
        *("type", "version", "aliases", "queue_name", "priority", "key", "key_scope", "key_ttl", "on_duplicate"),
        *("subject", "owner", "budget", "cleanup", "max_runtime", "retry", "useful_for", "takes_context", "atomic"),
        "soft_timeout",
        "replay_permission",
        "schedule",
        "resource",
        "serial_key",
        "serial_on_dead",
        "upcasters",
    ]
)


def declare(
    func: Callable[..., Any], *, source: EventSource | None = None, is_stock_task: bool = False, **declared: Any
) -> DurableJob[..., Any]:
    """Make a job type of a function and register it.

    ``source`` says from which events its jobs come; ``is_stock_task`` that Django's own decorator declared it.

    Raises:
        DefinitionError: The declaration cannot work; the message says why.
        KeyFormatError: A name is empty, too long or not printable ASCII.
    """
    unknown = sorted(set(declared) - _ALLOWED)
    if unknown:
        msg = f"@job has no option {unknown[0]!r} in this version; it takes {', '.join(sorted(_ALLOWED))}."
        raise DefinitionError(msg)
    _check_kinds(func, declared)
    job_type = default_type(func) if declared.get("type") is None else declared["type"]
    check_name(job_type, what="job type", limit=200)
    takes_context = declared.get("takes_context", False)
    atomic = declared.get("atomic")
    if takes_context and atomic:
        msg = f"{job_type}: a handler with a context commits through context.complete(), so atomic=True cannot hold."
        raise DefinitionError(msg)
    aliases = tuple(check_name(name, what="alias", limit=200) for name in declared.get("aliases", ()))
    options = _options(job_type, aliases, declared)
    terms = lease_terms(declared.get("budget"), declared.get("cleanup"), declared.get("max_runtime"))
    upcasters = checked_upcasters(
        job_type, options.version, {} if declared.get("upcasters") is None else declared["upcasters"]
    )
    definition = JobDefinition(
        func=func,
        signature=_signature(func, job_type, takes_context=takes_context),
        options=options,
        aliases=aliases,
        terms=terms,
        retry=declared.get("retry") or RetryPolicy(),
        takes_context=takes_context,
        atomic=not takes_context if atomic is None else atomic,
        soft_timeout=_soft_timeout(job_type, terms, declared.get("soft_timeout")),
        replay_permission=_permission(job_type, declared.get("replay_permission", "")),
        source=source,
        is_stock_task=is_stock_task,
        upcasters=upcasters,
        module_run=module_run(func),
    )
    if source is None:  # an event is checked by its own type
        definition = replace(definition, options=replace(definition.options, fits=definition.fits))
    if upcasters:
        definition = replace(definition, options=replace(definition.options, upcast=definition.upcast))
    check_definition(definition)
    durable: DurableJob[..., Any] = DurableJob(definition)
    register(durable)
    if declared.get("schedule") is not None:
        place = Place(func.__module__, definition.module_run, by_decorator=True)
        declare_schedule(durable, declared["schedule"], place=place)
    return durable


_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "aliases": ((tuple, list), "a tuple of names"),
    "retry": ((RetryPolicy,), "a RetryPolicy"),
    "takes_context": ((bool,), "True or False"),
    "atomic": ((bool,), "True or False"),
    "soft_timeout": ((bool,), "True or False"),
}


_PERMISSION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z0-9_]+")
_PERMISSION_LIMIT = 200


def _check_kinds(func: object, declared: dict[str, Any]) -> None:
    if not inspect.isfunction(func):
        msg = f"@job goes on a plain function, not on {func!r}."
        raise DefinitionError(msg)
    for option, (kinds, wanted) in _KINDS.items():
        value = declared.get(option)
        left_out = value is None and (option != "aliases" or option not in declared)
        if not left_out and not isinstance(value, kinds):
            msg = f"{func.__qualname__}: {option} must be {wanted}, not {value!r}."
            raise DefinitionError(msg)


def _soft_timeout(job_type: str, terms: LeaseTerms, declared: bool | None) -> bool:
    wanted = get_settings().soft_timeout if declared is None else declared
    if wanted:
        try:
            check_soft(terms)
        except DefinitionError as error:
            msg = f"{job_type}: {error}"
            raise DefinitionError(msg) from None
    return wanted


def _permission(job_type: str, value: object) -> str:
    if value == "":
        return ""
    if not isinstance(value, str) or len(value) > _PERMISSION_LIMIT or not _PERMISSION.fullmatch(value):
        msg = (
            f"{job_type}: replay_permission must be a permission with its app, such as 'billing.replay_charges', not "
            f"{value!r}."
        )
        raise DefinitionError(msg)
    return value


def _options(job_type: str, aliases: tuple[str, ...], declared: dict[str, Any]) -> EnqueueOptions:
    version = declared.get("version", 1)
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version < VERSION_BOUND:
        msg = f"{job_type}: version must be a whole number from 1 to {VERSION_BOUND - 1}, not {version!r}."
        raise DefinitionError(msg)
    on_duplicate = declared.get("on_duplicate", "return")
    if on_duplicate not in ("return", "reject"):  # compared, not looked up: it may have no hash
        msg = f'{job_type}: on_duplicate must be "return" or "reject", not {on_duplicate!r}.'
        raise DefinitionError(msg)
    options = EnqueueOptions(
        job_type=job_type,
        version=version,
        queue_name=declared.get("queue_name", "default"),
        priority=declared.get("priority", 0),
        key=declared.get("key"),
        # The first name that the type ever had: keys must go on answering through a rename.
        key_scope=(*reversed(aliases), job_type)[0] if declared.get("key_scope") is None else declared["key_scope"],
        key_ttl=get_settings().key_ttl if declared.get("key_ttl") is None else declared["key_ttl"],
        on_duplicate=on_duplicate,
        subject=declared.get("subject", ""),
        owner=declared.get("owner", ""),
        resource=declared.get("resource", ""),
        serial_key=declared.get("serial_key", ""),
        serial_on_dead=declared.get("serial_on_dead", "block"),
        useful_for=declared.get("useful_for"),
    )
    check(options)
    return options


def _signature(func: Callable[..., Any], job_type: str, *, takes_context: bool) -> inspect.Signature:
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        msg = f"{job_type}: a generator function cannot be a handler; declare a function that returns when it is done."
        raise DefinitionError(msg)
    signature = inspect.signature(func)
    parameters = list(signature.parameters.values())
    if takes_context:
        if not parameters or parameters[0].name != "context":
            msg = f"{job_type}: with takes_context=True the first parameter must be named 'context'."
            raise DefinitionError(msg)
        parameters = parameters[1:]
    for parameter in parameters:
        if parameter.kind in {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL}:
            msg = f"{job_type}: parameter {parameter.name!r} has no name in a payload; make it an ordinary parameter."
            raise DefinitionError(msg)
    return signature.replace(parameters=parameters)


def default_type(func: Callable[..., Any]) -> str:
    """Return app label plus function name.

    Raises:
        DefinitionError: The apps are not loaded yet, or the module belongs to no installed app.
    """
    try:
        config = apps.get_containing_app_config(func.__module__)
    except AppRegistryNotReady:
        config = None
    if config is None:
        msg = (
            f"{func.__module__}.{func.__qualname__} gets no default name: its module belongs to no installed app, or "
            "was imported before the apps were loaded. Give it a type=."
        )
        raise DefinitionError(msg)
    return f"{config.label}.{func.__name__}"
