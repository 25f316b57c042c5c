"""The project's own code around enqueues and attempts: ``CONTEXT`` and ``MIDDLEWARE`` of the settings.

Each object is made once per process. Nothing is imported and nothing is called while both lists are empty.
"""

from __future__ import annotations

import difflib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_jobs.conf import get_settings
from django_jobs.domain.carried import NAME_LIMIT
from django_jobs.domain.identity import check_name
from django_jobs.exceptions import DefinitionError, HookError, KeyFormatError
from django_jobs.propagation import Propagator

AROUND = ("around_enqueue", "around_attempt")
Around = Callable[[Any], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the settings name, in their order: the first is the outermost."""

    propagators: tuple[Propagator, ...] = ()
    around_enqueue: tuple[Around, ...] = ()
    around_attempt: tuple[Around, ...] = ()


class _Loaded:
    """The hooks of this process."""

    def __init__(self) -> None:
        self._hooks: Hooks | None = None
        self.unlock()

    def unlock(self) -> None:
        """Make a lock that nobody holds: a forked child inherits one that somebody may."""
        self._lock = threading.RLock()  # what asks again while it is loaded gets an error, and no wait for itself
        self._is_loading = False

    def get(self) -> Hooks:
        """Load them, once."""
        if self._hooks is not None:
            return self._hooks
        rules = get_settings()
        with self._lock:
            if self._hooks is None:
                self._hooks = self._load_once(rules.context, rules.middleware)
            return self._hooks

    def _load_once(self, context: Sequence[str], middleware: Sequence[str]) -> Hooks:
        if self._is_loading:
            msg = "A propagator or a middleware enqueues while it is imported or made; let it do so later."
            raise DefinitionError(msg)
        self._is_loading = True
        try:
            return _load(context, middleware)
        finally:
            self._is_loading = False

    def forget(self, *, setting: str, **_: object) -> None:
        """Load anew, with other settings."""
        if setting == "DJANGO_JOBS":
            self._hooks = None


_loaded = _Loaded()
os.register_at_fork(after_in_child=_loaded.unlock)
setting_changed.connect(_loaded.forget, dispatch_uid="django_jobs.hooks")


def hooks() -> Hooks:
    """Return what the settings name.

    Raises:
        DefinitionError: Something cannot be imported, or is neither propagator nor middleware.
    """
    return _loaded.get()


def _load(context: Sequence[str], middleware: Sequence[str]) -> Hooks:
    propagators = tuple(load_propagator(path) for path in context)
    if twice := repeated_name(propagators):
        raise DefinitionError(twice)
    made = [load_middleware(path) for path in middleware]
    enqueue, attempt = (tuple(getattr(one, name) for one in made if hasattr(one, name)) for name in AROUND)
    return Hooks(propagators, enqueue, attempt)


def load_propagator(path: str) -> Propagator:
    """Import and make a propagator.

    Raises:
        DefinitionError: There is none at this path.
    """
    made: Propagator = _made(path)
    for name in ("capture", "restore"):
        if not callable(getattr(made, name, None)):
            msg = f"{path} is no propagator: it has no method {name}()."
            raise DefinitionError(msg)
    try:
        check_name(getattr(made, "name", None), what=f"name of the propagator {path}", limit=NAME_LIMIT)
    except KeyFormatError as error:
        raise DefinitionError(str(error)) from error
    return made


def repeated_name(propagators: Sequence[Propagator]) -> str:
    """Say which name two propagators share; empty if none."""
    names = [one.name for one in propagators]
    twice = next((name for name in names if names.count(name) > 1), None)
    return "" if twice is None else f"Two propagators have the name {twice!r}; each needs one of its own."


def load_middleware(path: str) -> object:
    """Import and make a middleware.

    Raises:
        DefinitionError: There is none at this path.
    """
    made = _made(path)
    has = [name for name in AROUND if hasattr(made, name)]
    wrong = next((name for name in has if not callable(getattr(made, name))), None)
    if wrong or not has:
        why = f"its {wrong} is no method" if wrong else f"it has neither {AROUND[0]}() nor {AROUND[1]}()"
        msg = f"{path} is no middleware: {why}."
        raise DefinitionError(msg)
    return made


def _made(path: str) -> Any:
    """Import an object; a class is called, without arguments."""
    try:
        found = import_string(path)
    except Exception as error:
        msg = f"{path} cannot be imported: {error}.{_near(path)}"
        raise DefinitionError(msg) from error
    if not isinstance(found, type):
        return found
    try:
        return found()
    except Exception as error:
        msg = f"{path} cannot be made: {type(error).__name__}: {error}."
        raise DefinitionError(msg) from error


def _near(path: str) -> str:
    """Suggest the name in the module that looks most like the one that was asked for."""
    module, _, name = path.rpartition(".")
    try:
        names = vars(import_module(module))
    except Exception:  # noqa: BLE001  then the error of the import says what there is to say
        return ""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f" Did you mean {module}.{near[0]}?" if near else ""


class _Unheeding(AbstractContextManager[None]):
    """Enters and leaves another context manager, which may raise, but cannot turn an error into a success."""

    def __init__(self, inner: AbstractContextManager[Any]) -> None:
        self._inner = inner

    def __enter__(self) -> None:
        self._inner.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)


def enter(stack: ExitStack, manager: object, *, of: str) -> None:
    """Enter what a hook has returned; an error inside the block goes on, whatever the hook would like.

    Raises:
        HookError: It is no context manager.
    """
    if not isinstance(manager, AbstractContextManager):
        msg = f"{of} returned {type(manager).__name__}, no context manager; decorate it with contextlib.contextmanager."
        raise HookError(msg, hook=of)
    stack.enter_context(_Unheeding(manager))


def name_of(around: Around) -> str:
    """Return what a method of a middleware is called in messages."""
    owner = type(getattr(around, "__self__", around))
    return f"{getattr(around, '__name__', AROUND[0])}() of {owner.__module__}.{owner.__qualname__}"


def wrong_paths() -> Iterator[tuple[str, str]]:
    """Yield the setting and what is wrong with each path in it that cannot be used."""
    rules = get_settings()
    propagators = []
    for path in rules.context:
        try:
            propagators.append(load_propagator(path))
        except DefinitionError as error:
            yield "CONTEXT", str(error)
    if twice := repeated_name(propagators):
        yield "CONTEXT", twice
    for path in rules.middleware:
        try:
            load_middleware(path)
        except DefinitionError as error:
            yield "MIDDLEWARE", str(error)
