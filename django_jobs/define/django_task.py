"""What makes a job type one of Django's tasks too, where Django has them (6.0 and later)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils.module_loading import import_string

if TYPE_CHECKING:
    from django_jobs.define.definition import JobDefinition
    from django_jobs.domain.options import EnqueueOptions

DURABLE_BACKEND = "django_jobs.backends.tasks.DurableBackend"
if TYPE_CHECKING:
    _Task = object
else:
    try:
        from django.tasks import Task as _Task
    except ImportError:
        _Task = object


def durable_aliases() -> list[str]:
    """Return the aliases in ``TASKS`` of the package's backend and of its subclasses."""
    configured: dict[str, Any] = getattr(settings, "TASKS", {})
    return [alias for alias, one in configured.items() if _is_durable(one.get("BACKEND"))]


def backend_alias() -> str:
    """Return the first alias in ``TASKS`` of the package's backend; else "default"."""
    return next(iter(durable_aliases()), "default")


@functools.cache
def _is_durable(path: object) -> bool:
    """Say whether a backend is the package's own, or made of it; one that cannot be imported is neither."""
    if path == DURABLE_BACKEND or not isinstance(path, str):
        return path == DURABLE_BACKEND
    try:
        found = import_string(path)
    except ImportError:
        return False
    return any(f"{one.__module__}.{one.__qualname__}" == DURABLE_BACKEND for one in getattr(found, "__mro__", ()))


class AsTask(_Task):
    """A task whose fields are read from the declaration, so that nothing is said twice.

    Django's class is a frozen dataclass that is made by its own constructor; a job type is neither.
    """

    definition: JobDefinition
    options: EnqueueOptions

    __eq__ = object.__eq__
    __hash__ = object.__hash__
    __setattr__ = object.__setattr__
    __delattr__ = object.__delattr__

    @property
    def func(self) -> Any:
        """The handler."""
        return self.definition.func

    @property
    def priority(self) -> int:
        """From -100 to 100, bigger first."""
        return self.options.priority

    @property
    def queue_name(self) -> str:
        """The queue."""
        return self.options.queue_name

    @property
    def run_after(self) -> Any:
        """The earliest start, or how long to wait; None for at once."""
        return self.options.run_after

    @property
    def takes_context(self) -> bool:
        """Whether the handler gets a context first."""
        return self.definition.takes_context

    @property
    def backend(self) -> str:
        """The alias of the backend that answers for its results."""
        return backend_alias()

    @property
    def name(self) -> str:
        """The handler's name."""
        return str(self.definition.func.__name__)

    @property
    def module_path(self) -> str:
        """Where the handler is; the receivers of the backport's signals write it into the log."""
        return f"{self.definition.func.__module__}.{self.definition.func.__qualname__}"

    def __copy__(self) -> AsTask:
        return self

    def __deepcopy__(self, memo: object) -> AsTask:
        return self  # a declaration is not data: it stays the one that is registered

    def __reduce__(self) -> Any:
        return _registered, (self.definition.job_type,)


def _registered(job_type: str) -> Any:
    """Find what was pickled, in the registry: nothing is imported from a name that was stored."""
    from django_jobs.define.registry import get

    return get(job_type)
