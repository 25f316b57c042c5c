"""Propagators and middleware of a project, for tests that name them in the settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django_jobs import Attempting, Enqueueing, Middleware, Propagator

HERE = "tests.carriers"
LANGUAGE, TIME_ZONE = "django_jobs.propagation.Language", "django_jobs.propagation.TimeZone"

tenant: ContextVar[Any] = ContextVar("tests_tenant", default=None)
seen: list[tuple[str, Any]] = []  # what hooks and handlers noted, in order; a test begins with an empty one


@contextmanager
def inside(value: Any) -> Iterator[None]:
    """Make a tenant the current one."""
    token = tenant.set(value)
    try:
        yield
    finally:
        tenant.reset(token)


class Tenant(Propagator):
    """Carries the current tenant."""

    name = "tenant"

    def capture(self) -> Any:
        """Return it, or None."""
        seen.append(("capture", tenant.get()))
        return tenant.get()

    def restore(self, value: Any) -> Any:
        """Make it the current one."""
        return inside(value)


class Unable(Propagator):
    """Fails with what a test puts here."""

    name = "unable"
    at_capture: Exception | None = None
    at_restore: Exception | None = None
    returned: Any = None

    def capture(self) -> str:
        """Return something, or fail."""
        if self.at_capture:
            raise self.at_capture
        return "something"

    def restore(self, value: Any) -> Any:
        """Fail, or return no context manager."""
        if self.at_restore:
            raise self.at_restore
        return self.returned


class Noting(Middleware):
    """Notes what it is around, under its own name."""

    name = "outer"

    @contextmanager
    def around_enqueue(self, enqueueing: Enqueueing) -> Iterator[None]:
        """Note the beginning, then how it ended."""
        seen.append((self.name, enqueueing))
        with self._ended(enqueueing.results):
            yield

    @contextmanager
    def around_attempt(self, attempt: Attempting) -> Iterator[None]:
        """Note the beginning, then how it ended."""
        seen.append((self.name, attempt))
        with self._ended(tenant.get()):
            yield

    @contextmanager
    def _ended(self, more: Any) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            seen.append((f"{self.name} failed", type(error).__name__))
            raise
        seen.append((f"{self.name} ended", more))


class Inner(Noting):
    """The same under another name."""

    name = "inner"


class Hiding(Middleware):
    """Would like nobody to hear of an error."""

    @contextmanager
    def around_enqueue(self, enqueueing: Enqueueing) -> Iterator[None]:
        """Swallow it."""
        try:
            yield
        except Exception as error:
            seen.append(("swallowed", type(error).__name__))

    @contextmanager
    def around_attempt(self, attempt: Attempting) -> Iterator[None]:
        """Swallow it."""
        try:
            yield
        except Exception as error:
            seen.append(("swallowed", type(error).__name__))


class Raising(Middleware):
    """Raises what a test puts here: before, after, or instead of an error."""

    before: Exception | None = None
    after: Exception | None = None
    instead: Exception | None = None

    @contextmanager
    def around_enqueue(self, enqueueing: Enqueueing) -> Iterator[None]:
        """Raise."""
        with self._raising():
            yield

    @contextmanager
    def around_attempt(self, attempt: Attempting) -> Iterator[None]:
        """Raise."""
        with self._raising():
            yield

    @contextmanager
    def _raising(self) -> Iterator[None]:
        if self.before:
            raise self.before
        try:
            yield
        except Exception as error:
            raise (self.instead or error) from error
        if self.after:
            raise self.after


class Forgetful:
    """Returns no context manager; neither method was decorated."""

    def around_attempt(self, attempt: Attempting) -> Iterator[None]:
        """Yield, as a generator alone."""
        yield


class Nothing:
    """Is neither a propagator nor a middleware."""


class Needy(Nothing):
    """Cannot be made without arguments."""

    def __init__(self, argument: object) -> None: ...


class Half(Propagator):
    """Forgot to say what is captured."""

    name = "half"

    def restore(self, value: Any) -> Any:
        """Do nothing."""


class Again(Tenant):
    """Has a name that another one has."""


class Nameless(Tenant):
    """Has no name that could be stored."""

    name = ""


READY = Tenant()
