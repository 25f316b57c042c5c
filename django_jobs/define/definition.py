"""A job type: its handler, its policies, and the callable that user code holds."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, ParamSpec, TypeVar

from asgiref.sync import iscoroutinefunction, sync_to_async

from django_jobs.conf import get_settings
from django_jobs.define.django_task import AsTask
from django_jobs.domain.annotations import Sure, ambiguous, surely
from django_jobs.domain.event_payload import from_payload, to_payload
from django_jobs.domain.events import Event
from django_jobs.domain.identity import key_fields, restore
from django_jobs.domain.lease import LeaseTerms
from django_jobs.domain.options import EnqueueOptions
from django_jobs.domain.retry import RetryPolicy
from django_jobs.domain.upcasting import Upcaster, upcast
from django_jobs.enqueue.bulk import enqueue_many
from django_jobs.enqueue.calls import Call
from django_jobs.enqueue.enqueue import enqueue
from django_jobs.enqueue.outcome import EnqueueResult
from django_jobs.exceptions import DefinitionError, PayloadError

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSource:
    """The events from which the jobs of a subscriber come."""

    event_type: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDefinition:
    """All that is declared about one job type."""

    func: Callable[..., Any]
    signature: inspect.Signature
    options: EnqueueOptions
    aliases: tuple[str, ...]
    terms: LeaseTerms
    retry: RetryPolicy
    takes_context: bool
    atomic: bool
    soft_timeout: bool = False
    replay_permission: str = ""
    source: EventSource | None = None
    upcasters: Mapping[int, Upcaster] = field(default_factory=dict)
    module_run: object = None  # the execution of its module that declared it
    is_stock_task: bool = False  # declared by Django's own decorator: its code knows nothing of complete() and step()

    @property
    def job_type(self) -> str:
        """The stored name."""
        return self.options.job_type

    @property
    def is_coroutine(self) -> bool:
        """Whether the handler is a coroutine function, so that it can share an event loop with others."""
        return iscoroutinefunction(self.func)

    @property
    def names(self) -> tuple[str, ...]:
        """The stored name and the older ones that this handler also answers to."""
        return (self.options.job_type, *self.aliases)

    @property
    def oldest_name(self) -> str:
        """The name that it had first: what was remembered under it stays so after a rename."""
        return self.names[-1]

    @property
    def versions(self) -> tuple[int, ...]:
        """The payload versions that this code can run, oldest first; the last one is what it writes."""
        return (*self.upcasters, self.options.version)

    def upcast(self, since: int, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Turn stored arguments of an older version into those that this code would store.

        Raises:
            PayloadError: An upcaster is missing or failed, or what it made does not fit the handler.
            Exception: What an upcaster raised, if it is worth another try.
        """
        return self.bind((), self._upcast(since, stored))

    def _upcast(self, since: int, stored: Mapping[str, Any]) -> dict[str, Any]:
        version = self.options.version
        return upcast(self.job_type, self.upcasters, stored, since=since, version=version, retry=self.retry)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Fit arguments to the handler's signature, defaults included.

        Raises:
            PayloadError: They do not fit.
        """
        if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
            msg = f"The arguments of {self.job_type} must be a dict by parameter name, not {type(kwargs).__name__}."
            raise PayloadError(msg)
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            msg = f"The arguments do not fit {self.job_type}{_names_of(self.signature)}: {error}."
            raise PayloadError(msg) from None
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        for name, parameter in self.signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                arguments.update(arguments.pop(name, {}))
        if self.takes_context and "context" in arguments:  # of **rest: the handler gets its context under that name
            msg = f"{self.job_type} takes a context, so no argument of it can be called 'context'."
            raise PayloadError(msg)
        if self.source is not None and isinstance(arguments["event"], Event):
            arguments["event"] = to_payload(arguments["event"])
        return arguments

    def free(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> frozenset[str]:
        """Return the parameters that these arguments leave open.

        Raises:
            PayloadError: They do not fit, whatever is added.
        """
        try:
            given = self.signature.bind_partial(*args, **kwargs).arguments
        except TypeError as error:
            msg = f"The arguments do not fit {self.job_type}{_names_of(self.signature)}: {error}."
            raise PayloadError(msg) from None
        return frozenset(self.signature.parameters) - frozenset(given)

    def fits(self, arguments: Mapping[str, Any], text: str) -> None:
        """Refuse arguments that the handler's annotations could not take back from ``text``, which is to be stored.

        Raises:
            PayloadError: One does not fit; the message names the parameter.
        """
        try:
            known = _sure(self.func)
        except DefinitionError:
            return  # no worker starts with such a handler, and the check of the project tells of it
        doubtful = [
            name
            for name, plain, sure in known
            if type(arguments.get(name)) not in plain and not sure.fits(arguments.get(name))
        ]
        if not doubtful:
            return
        stored, hints = json.loads(text), type_hints(self.func)
        for name in doubtful:
            try:
                restore(stored[name], hints[name], path=name, strict=not self.is_stock_task)  # theirs may be careless
            except PayloadError as error:
                msg = f"The argument {name!r} does not fit its annotation in {self.job_type}: {error}"
                raise PayloadError(msg) from error

    def restore(self, stored: Mapping[str, Any], *, since: int | None = None) -> dict[str, Any]:
        """Turn stored JSON values back into what the handler's annotations say; ``since`` is their payload version.

        A parameter that the payload does not name, because it is newer, gets its default as the code has it.

        Raises:
            PayloadError: A stored value does not fit; the message names the parameter.
        """
        is_old = since is not None and since != self.options.version
        named = self._upcast(since, stored) if since is not None and is_old else stored
        arguments = self.bind((), named)
        if self.source is not None:
            return {"event": from_payload(arguments["event"])}
        try:
            hints = type_hints(self.func)
        except DefinitionError as error:
            raise PayloadError(str(error)) from error
        restored = {}
        for name, value in arguments.items():
            try:
                restored[name] = restore(value, hints[name]) if name in hints and name in named else value
            except PayloadError as error:
                msg = f"The stored argument {name!r} does not fit {self.job_type}: {error}"
                raise PayloadError(msg) from error
        return restored

    def code_version(self) -> str:
        """Return what is written into attempts: the configured version, else a hash of the handler's source."""
        set_outside = os.environ.get("DJANGO_JOBS_CODE_VERSION", "")
        readable = set_outside.encode("utf-8", "backslashreplace").decode()  # bytes that are no UTF-8 are in no row
        return get_settings().code_version or readable or source_hash(self.func)


class _Default:
    """Stands for a default in what is told: the value itself may be secret."""

    def __repr__(self) -> str:
        return "…"


def _names_of(signature: inspect.Signature) -> str:
    """Return the parameters by name, and which have a default; the default itself stays untold."""
    empty = inspect.Parameter.empty
    bare = [
        item.replace(annotation=empty, default=empty if item.default is empty else _Default())
        for item in signature.parameters.values()
    ]
    return str(signature.replace(parameters=bare, return_annotation=empty))


@functools.cache
def source_hash(func: Callable[..., Any]) -> str:
    """Hash the handler's source, or its byte code where the source is not at hand."""
    try:
        content = inspect.getsource(func).encode()
    except (OSError, TypeError):
        content = func.__code__.co_code
    return "source:" + hashlib.sha256(content).hexdigest()[:16]


@functools.cache
def type_hints(func: Callable[..., Any]) -> dict[str, Any]:
    """Resolve the annotations of the handler's parameters; what it returns may be annotated with anything.

    Raises:
        DefinitionError: An annotation names something that does not exist.
    """
    inner: Any = inspect.unwrap(func)  # where a decorated handler was written, its annotations mean something
    try:
        bare = types.FunctionType(inner.__code__, inner.__globals__, closure=inner.__closure__)
        bare.__annotations__ = {name: hint for name, hint in func.__annotations__.items() if name != "return"}
        return typing.get_type_hints(bare, include_extras=True)
    except Exception as error:
        msg = (
            f"The annotations of {func.__module__}.{func.__qualname__} cannot be resolved: {error}. Import at run time "
            "what they name, or leave them away."
        )
        raise DefinitionError(msg) from error


@functools.cache
def _sure(func: Callable[..., Any]) -> tuple[tuple[str, frozenset[type], Sure], ...]:
    """Return what fits for sure, and by its type alone, for the parameters whose annotations refuse anything.

    Raises:
        DefinitionError: An annotation names something that does not exist.
    """
    found = ((name, surely(hint)) for name, hint in type_hints(func).items())
    return tuple((name, sure.plain, sure) for name, sure in found if sure is not None)


def refuse_ambiguous(definition: JobDefinition) -> None:
    """Refuse annotations under which one stored value would have two answers.

    Raises:
        DefinitionError: There is one; or an annotation names something that does not exist.
    """
    for name, hint in type_hints(definition.func).items():
        pair = ambiguous(hint) if name in definition.signature.parameters else ""
        if pair:
            msg = (
                f"{definition.job_type}: one stored value of {name!r} can be both {pair}. Give the enums other values, "
                "or let the annotation name one of the two."
            )
            raise DefinitionError(msg)


class DurableJob(AsTask, Generic[P, R]):
    """What ``@job`` leaves in place of the function: call it to run it here, or enqueue it.

    On Django 6.0 and later it is one of Django's tasks too.
    """

    def __init__(self, definition: JobDefinition, options: EnqueueOptions | None = None) -> None:
        self.definition = definition
        self.options = options or definition.options
        functools.update_wrapper(self, definition.func)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the handler here and now, as a plain function."""
        result: R = self.definition.func(*args, **kwargs)
        return result

    def __repr__(self) -> str:
        return f"<job {self.definition.job_type}>"

    def enqueue(self, /, *args: Any, **kwargs: Any) -> EnqueueResult:
        """Record a job with these arguments; see :func:`django_jobs.enqueue.enqueue.enqueue` for its errors."""
        return enqueue(self.options, self.definition.bind(args, kwargs))

    async def aenqueue(self, /, *args: Any, **kwargs: Any) -> EnqueueResult:
        """Do what :meth:`enqueue` does, from async code."""
        # Bound before: asgiref has parameters of its own, whose names a handler's may be.
        return await sync_to_async(functools.partial(self.enqueue, *args, **kwargs), thread_sensitive=True)()

    def enqueue_many(self, rows: Iterable[Mapping[str, Any]]) -> list[EnqueueResult]:
        """Record one job per dict of keyword arguments, all or none; a conflict is a result, a duplicate always too."""
        if not isinstance(rows, Iterable):
            msg = f"enqueue_many() of {self.definition.job_type} takes dicts of arguments, not {type(rows).__name__}."
            raise PayloadError(msg)
        return enqueue_many(self.options, (self._bind_row(place, row) for place, row in enumerate(rows)))

    async def aenqueue_many(self, rows: Iterable[Mapping[str, Any]]) -> list[EnqueueResult]:
        """Do what :meth:`enqueue_many` does, from async code."""
        return await sync_to_async(self.enqueue_many, thread_sensitive=True)(rows)

    def prepare(self, /, *args: Any, **kwargs: Any) -> Call:
        """Return a call with these arguments that is not enqueued yet, for ``batch`` and ``chain``.

        Raises:
            PayloadError: The arguments do not fit the handler.
        """
        definition = self.definition
        free = definition.free(args, kwargs)
        return Call(options=self.options, bind=definition.bind, free=free, args=args, kwargs=kwargs)

    def using(self, **changes: Any) -> DurableJob[P, R]:
        """Return a copy with another key, run_after, priority, queue_name, database, tenant, subject or detached."""
        return DurableJob(self.definition, self.options.changed(**changes))

    def _bind_row(self, place: int, row: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self.definition.bind((), row)
        except PayloadError as error:
            msg = f"Row {place}: {error}"
            raise PayloadError(msg) from error


def check_definition(definition: JobDefinition) -> None:
    """Refuse a declaration that cannot work.

    Raises:
        DefinitionError: The message names the job type and the mend.
    """
    try:
        type_hints(definition.func)
    except DefinitionError:
        pass  # what they name may be written further down; it is looked at again when all is imported
    else:
        refuse_ambiguous(definition)
    kinds = {name: parameter.kind for name, parameter in definition.signature.parameters.items()}
    if inspect.Parameter.VAR_KEYWORD in kinds.values():
        return  # any name may be an argument
    templates = {name: getattr(definition.options, name) for name in ("key", "subject", "serial_key")}
    for what, template in templates.items():
        missing = sorted(set(key_fields(template)) - set(kinds)) if template else []
        if missing:
            msg = f"The {what} of {definition.job_type} uses {missing[0]!r}, which is no parameter of the handler."
            raise DefinitionError(msg)


def lease_terms(budget: timedelta | None, cleanup: timedelta | None, max_runtime: timedelta | None) -> LeaseTerms:
    """Fill what is not declared from the settings."""
    rules = get_settings()
    return LeaseTerms(
        budget=rules.budget if budget is None else budget,
        cleanup=rules.cleanup if cleanup is None else cleanup,
        max_runtime=max_runtime,
    )
