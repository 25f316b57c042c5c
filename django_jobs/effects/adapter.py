"""How an operation on the world is declared: the ``@effect`` decorator, and objects with the same protocol."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, Literal, Protocol, overload

from django_jobs.define.definition import type_hints
from django_jobs.domain.durations import check_longest
from django_jobs.domain.effects import Dedupe, Guarantees, Outcome, Reconciliation, Verdict
from django_jobs.domain.identity import check_name, provider_key, restore
from django_jobs.domain.retry import RetryPolicy
from django_jobs.effects.receipts import RECEIPT, receipt_from
from django_jobs.exceptions import DefinitionError, PayloadError

DEFAULT_TIMEOUT = timedelta(seconds=10)
NAME_LIMIT = 200
_TAKEN = frozenset({"key", "required", "on_ambiguous", "name", "operation", "self"})  # of context.effect() itself

Answer = Verdict | Reconciliation
_GUARANTEED = frozenset(field.name for field in fields(Guarantees)) - {"can_reconcile"}


class Adapter(Protocol):
    """An object that can be given to ``context.effect`` in place of a function with ``@effect``.

    ``provider``, ``timeout``, ``requires_key``, ``owner``, ``retry``, ``aliases`` and ``reconcile(call, **request)``
    are optional; so is ``prepare(**request)``, which checks a request and returns it in the form in which it is
    recorded and sent.
    """

    @property
    def name(self) -> str:
        """What the operation is called, for example ``payments.charge``."""

    @property
    def guarantees(self) -> Guarantees:
        """What the provider promises about it."""

    def send(self, call: Any, **request: Any) -> Outcome:
        """Make one request: no retries inside, ``call.remaining`` kept, ``Unknown`` when in doubt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A declared operation in the form that the record of effects works with."""

    name: str
    provider: str
    guarantees: Guarantees
    timeout: timedelta
    requires_key: bool
    owner: str
    retry: RetryPolicy | None
    send: Callable[..., Any]
    ask: Callable[..., Any] | None
    prepare: Callable[..., Mapping[str, Any]] | None = None
    compensates: str = ""  # the operation that this one takes back
    aliases: tuple[str, ...] = ()  # names that it had before, under which effects are recorded

    def bind(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Fit a request to the operation's parameters, defaults included, so that the stored one is whole.

        Raises:
            DefinitionError: It does not fit.
            PayloadError: The operation refuses its values.
        """
        try:
            bound = inspect.signature(self.send).bind(None, **request)
        except TypeError as error:
            msg = f"The request does not fit the operation {self.name!r}: {error}."
            raise DefinitionError(msg) from None
        bound.apply_defaults()
        arguments = dict(list(bound.arguments.items())[1:])
        for name, parameter in inspect.signature(self.send).parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                arguments.update(arguments.pop(name, {}))
        return dict(self.prepare(**arguments)) if self.prepare is not None else arguments

    def restored(self, stored: Mapping[str, Any], *, asking: bool = False) -> dict[str, Any]:
        """Return stored JSON values in the types of the annotations: the first request gets the same as a repeated one.

        Raises:
            PayloadError: A value does not fit its annotation.
        """
        hints = type_hints(self.ask if asking and self.ask is not None else self.send)
        receipt: dict[str, Any] = {}
        if self.compensates:
            receipt = {RECEIPT: receipt_from(stored.get(RECEIPT))}
            hints = {name: hint for name, hint in hints.items() if name != RECEIPT}
        try:
            found = {name: restore(value, hints[name]) if name in hints else value for name, value in stored.items()}
        except PayloadError as error:
            msg = f"The request does not fit the operation {self.name!r}: {error}"
            raise PayloadError(msg) from error
        return found | receipt


class EffectOperation:
    """What ``@effect`` leaves in place of the function: give it to ``context.effect``."""

    def __init__(self, function: Callable[..., Outcome], declared: Operation) -> None:
        self._declared = declared
        self._reconcile: Callable[..., Answer] | None = None
        self._compensation: EffectOperation | None = None
        self.function = function
        functools.update_wrapper(self, function)

    def __call__(self, call: Any, *receipt: Any, **request: Any) -> Outcome:
        """Make the request here and now, without any record: for tests of the operation itself."""
        return self.function(call, *receipt, **request)

    def __repr__(self) -> str:
        return f"<effect {self.name}>"

    @property
    def name(self) -> str:
        """What the operation is called."""
        return self._declared.name

    @property
    def provider(self) -> str:
        """Who is asked to act; part of the identity of its effects."""
        return self._declared.provider

    @property
    def guarantees(self) -> Guarantees:
        """What the provider promises."""
        return self.declared.guarantees

    @property
    def declared(self) -> Operation:
        """All that was declared."""
        if self._reconcile is None:
            return self._declared
        guarantees = replace(self._declared.guarantees, can_reconcile=True)
        return replace(self._declared, guarantees=guarantees, ask=self._reconcile)

    def reconcile(self, function: Callable[..., Answer]) -> Callable[..., Answer]:
        """Declare how the provider is asked whether the operation happened; the function takes the same parameters.

        Raises:
            DefinitionError: It is declared already, or takes other parameters.
        """
        if self._reconcile is not None:
            msg = f"{self.name}: reconcile is declared twice; keep one."
            raise DefinitionError(msg)
        _check_function(function, f"{self.name}.reconcile")
        if self._declared.compensates:
            _check_second(function, f"{self.name}.reconcile")
        ours, theirs = _request_names(self.function), _request_names(function)
        if ours is not None and theirs is not None and ours != theirs:
            msg = (
                f"{self.name}: reconcile takes {', '.join(sorted(theirs)) or 'nothing'}, but the operation takes "
                f"{', '.join(sorted(ours)) or 'nothing'}; give both the same parameters."
            )
            raise DefinitionError(msg)
        self._reconcile = function
        return function

    @property
    def taken_back_by(self) -> EffectOperation | None:
        """The declared compensation, None without one."""
        return self._compensation

    @overload
    def compensation(self, function: Callable[..., Outcome], /) -> EffectOperation: ...

    @overload
    def compensation(self, /, **promised: Any) -> Callable[[Callable[..., Outcome]], EffectOperation]: ...

    def compensation(self, function: Callable[..., Outcome] | None = None, /, **promised: Any) -> Any:
        """Declare how the operation is taken back: a function ``(call, confirmed, **request)``, an effect of its own.

        It gets what the provider confirmed and the request of the effect, and is held to the rules of ``@effect``: one
        request, ``Confirmed``, ``Rejected`` or ``Unknown``. What is returned has ``reconcile`` in its turn.

        Args:
            function: The function, when the decorator is used bare: the provider then promises the same about it as
                about the operation.
            **promised: What holds instead: ``dedupe``, ``key_lifetime``, ``timeout``, ``owner``, ``settle``,
                ``visible_after``, ``caches_failures``, ``key_max_length``, ``key_alphabet``, ``retry``, ``docs``, as
                with ``@effect``. ``key_lifetime`` comes with ``dedupe``.

        Raises:
            DefinitionError: It is declared already, cannot work, or takes other parameters; the message says which.
        """
        if function is not None:
            return self._take_back(function, {})
        return functools.partial(self._take_back, promised=promised)

    def _take_back(self, function: Callable[..., Outcome], promised: Mapping[str, Any]) -> EffectOperation:
        if self._declared.compensates:
            msg = f"{self.name} takes something back itself; there is no compensation of a compensation."
            raise DefinitionError(msg)
        if self._compensation is not None and _place(self._compensation.function) != _place(function):
            msg = f"{self.name}: compensation is declared twice; keep one."
            raise DefinitionError(msg)
        self._compensation = declared_compensation(self._declared, function, promised)
        return self._compensation


def declared_compensation(
    original: Operation, function: Callable[..., Outcome], promised: Mapping[str, Any]
) -> EffectOperation:
    """Return the operation that takes ``original`` back.

    Raises:
        DefinitionError: It cannot work; the message says why.
    """
    name = f"{original.name}.compensation"
    unknown = sorted(set(promised) - _GUARANTEED - {"timeout", "owner", "retry"})
    if unknown:
        takes = ", ".join(sorted(_GUARANTEED | {"timeout", "owner", "retry"}))
        msg = f"{name}: compensation() has no option {unknown[0]!r}; it takes {takes}."
        raise DefinitionError(msg)
    if "key_lifetime" in promised and "dedupe" not in promised:
        msg = f'{name}: key_lifetime comes with dedupe="key"; name both.'
        raise DefinitionError(msg)
    _check_function(function, name)
    _check_receipt(original, function, name)
    inherited = {} if "dedupe" in promised else {"key_lifetime": original.guarantees.key_lifetime}
    guarantees = replace(
        original.guarantees,
        can_reconcile=False,
        **{"key_lifetime": None, **inherited, **{key: promised[key] for key in _GUARANTEED & set(promised)}},
    )
    operation = replace(
        original,
        name=name,
        guarantees=guarantees,
        requires_key=True,
        send=function,
        ask=None,
        prepare=None,
        compensates=original.name,
        **{key: promised[key] for key in ("timeout", "owner", "retry") if key in promised},
    )
    return EffectOperation(function, checked(operation))


def _check_second(function: Callable[..., Any], name: str) -> None:
    if list(inspect.signature(function).parameters)[1:2] != [RECEIPT]:
        msg = f"{name}: the second parameter must be named {RECEIPT!r}; it is what the provider confirmed."
        raise DefinitionError(msg)


def _check_receipt(original: Operation, function: Callable[..., Any], name: str) -> None:
    _check_second(function, name)
    ours, theirs = _request_names(original.send), _request_names(function)
    if RECEIPT in (ours or ()):
        msg = f"{name}: the operation itself has a parameter {RECEIPT!r}; rename that one."
        raise DefinitionError(msg)
    if ours is not None and theirs is not None and ours != theirs - {RECEIPT}:
        msg = (
            f"{name} takes {', '.join(sorted(theirs - {RECEIPT})) or 'nothing'} beside {RECEIPT!r}, but the operation "
            f"takes {', '.join(sorted(ours)) or 'nothing'}; give both the same parameters, or end with **rest."
        )
        raise DefinitionError(msg)


_declared: dict[str, EffectOperation] = {}
_lock = threading.Lock()


def declared_effects() -> dict[str, EffectOperation]:
    """Return every operation declared with ``@effect``, by name."""
    with _lock:
        return dict(sorted(_declared.items()))


def effect_named(stored: str) -> EffectOperation | None:
    """Return the operation under whose name, or former name, an effect is recorded; None where there is none."""
    known = declared_effects()
    return known.get(stored) or next((one for one in known.values() if stored in one.declared.aliases), None)


def effect(
    name: str,
    *,
    dedupe: Literal["key", "natural", "none"] | Dedupe,
    key_lifetime: timedelta | None = None,
    requires_key: bool = False,
    timeout: timedelta = DEFAULT_TIMEOUT,
    owner: str = "",
    provider: str | None = None,
    settle: timedelta = timedelta(seconds=30),
    visible_after: timedelta = timedelta(0),
    caches_failures: bool = False,
    key_max_length: int = 255,
    key_alphabet: Literal["ascii", "uuid"] = "ascii",
    retry: RetryPolicy | None = None,
    docs: str = "",
    aliases: Iterable[str] = (),
) -> Callable[[Callable[..., Outcome]], EffectOperation]:
    """Declare a function ``(call, **request)`` as an operation on the world.

    It makes one request without retries inside, keeps to ``call.remaining`` seconds in all, and returns ``Confirmed``,
    ``Rejected`` (only when the answer proves that nothing was applied) or ``Unknown``. An exception counts as unknown.

    Args:
        name: What it is called, for example ``payments.charge``.
        dedupe: What the provider does with a repeated request: "key" (a documented idempotency key), "natural" (the
            same bytes converge) or "none" (a second request is a second effect).
        key_lifetime: How long the provider remembers a key; needed for "key".
        requires_key: Refuse ``context.effect`` without ``key=``: for acts that must not happen twice per business act.
        timeout: The longest one request may take.
        owner: Who is told when a human must look.
        provider: Who acts; default: the name up to its first dot.
        settle: How long after a request's deadline it may still be applied.
        visible_after: How much later a question is sure to see it.
        caches_failures: The provider answers a rejected key with the same rejection again.
        key_max_length: The longest key that the provider takes.
        key_alphabet: "ascii", or "uuid" where the provider wants UUIDs.
        retry: Delays between questions and requests; default: the job's.
        docs: Where the provider documents all this.
        aliases: Names that it had before: what was recorded under them is the same operation.

    Raises:
        DefinitionError: The declaration cannot work; the message says why.
    """
    guarantees = Guarantees(
        dedupe=dedupe,  # type: ignore[arg-type]
        key_lifetime=key_lifetime,
        key_max_length=key_max_length,
        key_alphabet=key_alphabet,
        caches_failures=caches_failures,
        settle=settle,
        visible_after=visible_after,
        docs=docs,
    )

    def decorate(function: Callable[..., Outcome]) -> EffectOperation:
        _check_function(function, str(name))
        operation = EffectOperation(
            function,
            checked(
                Operation(
                    name=name,
                    provider=provider or str(name).partition(".")[0],
                    guarantees=guarantees,
                    timeout=timeout,
                    requires_key=requires_key,
                    owner=owner,
                    retry=retry,
                    send=function,
                    ask=None,
                    aliases=_names(aliases),
                )
            ),
        )
        _register(operation)
        return operation

    return decorate


def _register(operation: EffectOperation) -> None:
    with _lock:
        other = next((one for one in _declared.values() if _clash(one, operation)), None)
        if other is not None:
            msg = (
                f"The effect {operation.name!r} is declared twice, or is the former name of another one: by "
                f"{_place(other.function)} and by {_place(operation.function)}. Give one of them another name."
            )
            raise DefinitionError(msg)
        _declared[operation.name] = operation


def _clash(one: EffectOperation, other: EffectOperation) -> bool:
    """Say whether two functions have a name in common; the same one comes again when its module is run again."""
    names = {one.name, *one.declared.aliases} & {other.name, *other.declared.aliases}
    return bool(names) and _place(one.function) != _place(other.function)


def _place(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def checked(operation: Operation) -> Operation:
    """Return the operation if it can work.

    Raises:
        DefinitionError: It cannot; the message names the mend.
    """
    for name in (operation.name, *operation.aliases):
        _checked_name(name, "effect's name", NAME_LIMIT)
    _checked_name(operation.provider, "provider", NAME_LIMIT)
    if operation.owner:
        _checked_name(operation.owner, "owner", 100)
    timeout: object = operation.timeout
    if not isinstance(timeout, timedelta) or timeout <= timedelta(0):
        msg = f"{operation.name}: timeout is {timeout!r}; give a timedelta above zero. No call runs without end."
        raise DefinitionError(msg)
    check_longest(timeout, what=f"{operation.name}: timeout")
    retry: object = operation.retry
    if not isinstance(retry, RetryPolicy | None):
        msg = f"{operation.name}: retry is {retry!r}; give a RetryPolicy or None."
        raise DefinitionError(msg)
    if operation.guarantees.can_reconcile and operation.ask is None:
        msg = f"{operation.name}: the guarantees say can_reconcile, but there is no method reconcile(call, **request)."
        raise DefinitionError(msg)
    provider_key(  # too short a key is found out here, not when money is at stake
        namespace="",
        tenant="",
        provider=operation.provider,
        business_key="k",
        effect_name=operation.name,
        epoch=0,
        alphabet=operation.guarantees.key_alphabet,
        max_length=operation.guarantees.key_max_length,
    )
    return operation


def _names(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        msg = f"aliases is {value!r}; give a list of former names."
        raise DefinitionError(msg)
    return tuple(value)


def _checked_name(value: object, what: str, limit: int) -> None:
    try:
        check_name(value, what=what, limit=limit)
    except PayloadError as error:
        raise DefinitionError(str(error)) from None


def _check_function(function: object, name: str) -> None:
    if not inspect.isfunction(function):
        msg = f"{name}: @effect goes on a plain function (call, **request), not on {function!r}."
        raise DefinitionError(msg)
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        msg = f"{name}: async and generator functions cannot be called in this version; declare a plain function."
        raise DefinitionError(msg)
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].name != "call":
        msg = f"{name}: the first parameter must be named 'call'; it carries the key and the time that is left."
        raise DefinitionError(msg)
    for parameter in parameters[1:]:
        if parameter.kind in {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL}:
            msg = f"{name}: parameter {parameter.name!r} has no name in a request; make it an ordinary parameter."
            raise DefinitionError(msg)
        if parameter.name in _TAKEN:
            msg = f"{name}: a parameter named {parameter.name!r} would be taken by context.effect() itself; rename it."
            raise DefinitionError(msg)


def _request_names(function: Callable[..., Any]) -> set[str] | None:
    """Return the names of the request's parameters; None when any name is taken."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name for parameter in parameters}


def resolve(operation: Any) -> Operation:
    """Return what was declared about an operation that a handler gave.

    Raises:
        DefinitionError: It is a bare function, or lacks what the protocol needs.
    """
    if isinstance(operation, EffectOperation):
        return operation.declared
    if isinstance(operation, Operation):
        return operation
    if inspect.isroutine(operation) or inspect.isclass(operation):
        given = getattr(operation, "__name__", repr(operation))
        msg = (
            f"{given} is a bare function or class: nothing says what happens when its request is repeated. Declare it: "
            f'@effect("{given.strip("<>")}", dedupe="none") above def {given.strip("<>")}(call, **request); dedupe is '
            '"key", "natural" or "none".'
        )
        raise DefinitionError(msg)
    guarantees = getattr(operation, "guarantees", None)
    if not isinstance(guarantees, Guarantees) or not callable(getattr(operation, "send", None)):
        msg = f"{operation!r} is no operation: it needs a name, guarantees and a method send(call, **request)."
        raise DefinitionError(msg)
    name = getattr(operation, "name", "")
    return checked(
        Operation(
            name=name,
            provider=getattr(operation, "provider", "") or str(name).partition(".")[0],
            guarantees=guarantees,
            timeout=getattr(operation, "timeout", DEFAULT_TIMEOUT),
            requires_key=bool(getattr(operation, "requires_key", False)),
            owner=getattr(operation, "owner", ""),
            retry=getattr(operation, "retry", None),
            send=operation.send,
            ask=getattr(operation, "reconcile", None) if guarantees.can_reconcile else None,
            prepare=getattr(operation, "prepare", None),
            aliases=_names(getattr(operation, "aliases", ())),
        )
    )
