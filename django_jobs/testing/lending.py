"""Lending a test's connection to the code of a worker, which believes that it has one of its own.

A ``TestCase`` keeps one transaction open around a test and takes it back in the end, so nothing in it ever commits. A
worker begins and commits transactions, drops what is broken, and cleans up after each job. For the time of one attempt
the alias therefore gets another connection object over the driver's same connection. Inside the transaction of a test,
it begins with a savepoint and commits by releasing that: rows are kept or taken back, constraints are checked and what
waits for the commit runs exactly when it would outside of a test. What the worker does to the connection object (its
hooks, its query log, what it clears) goes with that object.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import InterfaceError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.enqueue.inside import in_transaction
from django_jobs.exceptions import JobsError, KitError
from django_jobs.testing.breaking import Breakable
from django_jobs.testing.life import SimulatedCrash
from django_jobs.testing.writes import notice
from django_jobs.worker.hygiene import OWN_END, Watch
from django_jobs.worker.session import ends_transaction

_LIMITS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
_IN_ERROR = 3  # libpq's PQTRANS_INERROR
_BEGUN, _ONE = "django_jobs_begun", "django_jobs_one"  # savepoints: of a transaction, of one statement outside of any


class _LentWatch(Watch):
    """Looks after the connection object alone: the driver's session is the test's, with its open transaction."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        super().__init__(connection)
        self.others_too = True  # the other connections of this thread are the test's

    def _connected(self) -> None:
        self.session = None


class _Lent(Breakable):
    """Mixed into the class of a connection: goes on with the driver's connection that it was lent."""

    is_lent = True
    lender: Any

    def adopt(self: Any, lender: BaseDatabaseWrapper) -> None:
        """Take over the driver's connection of the test."""
        self.lender = lender
        self.savepoint_state = lender.savepoint_state
        self.execute_wrappers = [*lender.execute_wrappers, *self.own_wrappers()]
        self.connect()
        self._commit = self.commit_for_certain  # in place: the worker puts its own only where none is
        self._django_jobs_watch = _LentWatch(self)

    def own_wrappers(self: Any) -> list[Any]:
        """Return what every statement passes."""
        return [self.along_line, notice]

    def connect(self: Any) -> None:
        """Begin anew on the same connection of the driver.

        Raises:
            KitError: The test's connection is gone.
            SimulatedCrash: The process that it was lent to is dead.
        """
        if self.is_dead:
            raise SimulatedCrash
        raw = self.lender.connection
        if raw is None or getattr(raw, "closed", False):
            msg = f"The test's connection to the database {self.alias!r} is gone."
            raise KitError(msg)
        self.get_connection_params()  # some of what Django knows of a connection is kept by the way
        self.connection, self.autocommit = raw, True
        self.in_atomic_block = self.needs_rollback = self.closed_in_transaction = self.errors_occurred = False
        for name in ("savepoint_ids", "atomic_blocks", "run_on_commit"):
            setattr(self, name, [])
        self.close_at, self.health_check_done = None, True

    def commit_for_certain(self: Any) -> None:
        """Commit."""
        self.commit_along_line(lambda: type(self)._commit(self))  # noqa: SLF001

    def is_usable(self: Any) -> bool:
        """Say whether the driver's connection works."""
        return not self.is_severed and super().is_usable()  # type: ignore[misc]  # the connection's class comes next

    def close(self: Any) -> None:
        """Let go of the connection; also where Django would keep a database that is in memory."""
        BaseDatabaseWrapper.close(self)

    def _close(self: Any) -> None:
        if not self.is_severed:
            self.let_go()


class _LentInside(_Lent):
    """Lent inside the transaction of a test: begins with a savepoint, commits by releasing it."""

    def adopt(self: Any, lender: BaseDatabaseWrapper) -> None:
        """Take over the driver's connection of the test, inside its transaction."""
        self._has_begun = False
        self._limits = _limits_of(lender)
        super().adopt(lender)

    def own_wrappers(self: Any) -> list[Any]:
        """Return what keeps the test's transaction alive whatever a statement does."""
        return [self.along_line, self._guard, notice]

    def _guard(self: Any, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        text = sql if isinstance(sql, str) else ""
        if ends_transaction(text):
            raise JobsError(OWN_END)
        if text.lstrip()[:15].upper() == "SET TRANSACTION":
            return None  # the transaction of the test is as it is
        if self.vendor != "postgresql" or not self.autocommit:
            return execute(sql, params, many, context)
        self._mark(f"SAVEPOINT {_ONE}")  # one that fails by itself leaves the rest of the test alone
        try:
            result = execute(sql, params, many, context)
        except BaseException:
            self._take_back(_ONE)
            raise
        self._mark(f"RELEASE SAVEPOINT {_ONE}")
        return result

    def _mark(self: Any, text: str) -> None:
        if self.is_severed:
            self.connection.execute(text)  # raises what it was severed with
        try:
            self.connection.execute(text)
        except Exception as error:
            msg = (
                "The transaction of the test was ended by a statement that Django does not see, most likely on the "
                "driver's own connection. Nothing that the test did is there any more."
            )
            raise KitError(msg) from error

    def _take_back(self: Any, name: str) -> None:
        self._mark(f"ROLLBACK TO SAVEPOINT {name}")
        self._mark(f"RELEASE SAVEPOINT {name}")

    def _start_transaction_under_autocommit(self: Any) -> None:
        self._set_autocommit(False)

    def _set_autocommit(self: Any, autocommit: bool) -> None:
        if not autocommit and not self._has_begun:
            self._mark(f"SAVEPOINT {_BEGUN}")
            self._has_begun = True

    def _commit(self: Any) -> None:
        if not self._has_begun:
            return
        if _is_broken(self):  # the server would answer ROLLBACK to the COMMIT of such a transaction
            self._rollback()
            return
        self._check_constraints()
        self._mark(f"RELEASE SAVEPOINT {_BEGUN}")
        self._has_begun = False
        self._put_limits_back()

    def _check_constraints(self: Any) -> None:
        """Check what a COMMIT would; which constraints are deferred stays as it was, as after a COMMIT."""
        if self.vendor != "postgresql":
            self.check_constraints()
            return
        self._mark(f"SAVEPOINT {_ONE}")
        with self.wrap_database_errors:
            self.connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        self._take_back(_ONE)

    def _rollback(self: Any) -> None:
        if self._has_begun and self.connection is not None and not self.is_severed:
            self._has_begun = False
            self._take_back(_BEGUN)

    def raw_is_busy(self: Any) -> bool:
        """Say whether a transaction was begun; the driver's own is the test's."""
        return bool(self.in_atomic_block or self._has_begun)

    def let_go(self: Any) -> None:
        """Take back to where it began."""
        self._rollback()

    def _put_limits_back(self: Any) -> None:
        """What was set for the transaction that ended here would go on for the rest of the test."""
        if self._limits:
            calls = ", ".join(f"set_config('{name}', %s, true)" for name in _LIMITS)
            self.connection.execute(f"SELECT {calls}", self._limits)


def _limits_of(lender: Any) -> list[str]:
    if lender.vendor != "postgresql":
        return []
    looks = ", ".join(f"current_setting('{name}')" for name in _LIMITS)
    return list(lender.connection.execute(f"SELECT {looks}").fetchone())


@functools.cache
def _class_of(mixin: Any, base: Any) -> Any:
    return type(f"{mixin.__name__}{base.__name__}", (mixin, base), {})


def _made_from(lender: BaseDatabaseWrapper) -> Any:
    base: Any = type(lender)
    kind = _class_of(_LentInside if lender.in_atomic_block else _Lent, base)
    made = kind({**lender.settings_dict, "CONN_HEALTH_CHECKS": False, "CONN_MAX_AGE": None}, lender.alias)
    made.adopt(lender)
    return made


@contextmanager
def lent(using: str) -> Iterator[None]:
    """Lend every connection of this thread that is in use to what runs in the block; ``using`` is opened if need be.

    One that the test class does not name in ``databases`` stays what it is there: closed, for a handler too. Another
    object stands in for it, because a worker closes what it need not keep, in whichever thread it runs.

    Raises:
        AssertionError: ``using`` is such a one; Django's message says what to do.
        KitError: A transaction of the test's own is open, in which no worker would see what is not committed yet.
    """
    try:
        connections[using].ensure_connection()
    except InterfaceError as error:
        msg = f"The test's connection to the database {using!r} is gone: {error}"
        raise KitError(msg) from error
    if is_closed(connections[using]):
        connections[using].cursor()  # Django's own words
    in_use = [found for found in connections.all(initialized_only=True) if found.connection is not None]
    lenders = [found for found in in_use if not is_closed(found)]
    for lender in lenders:
        _check(lender)
    with ExitStack() as stack:
        for lender in lenders:
            made = _made_from(lender)
            stack.callback(_give_back, lender, made)
            connections[lender.alias] = made
        for found in connections.all(initialized_only=True):
            if is_closed(found):
                stack.callback(connections.__setitem__, found.alias, found)
                connections[found.alias] = _stand_in(found)
        yield


def is_closed(connection: BaseDatabaseWrapper) -> bool:
    """Say whether Django put an error in the place of this connection's methods, for the tests of a class."""
    return _is_refusal(vars(connection).get("cursor"))


def _is_refusal(put: object) -> bool:
    return hasattr(put, "wrapped") and hasattr(put, "message")


def _stand_in(closed: BaseDatabaseWrapper) -> BaseDatabaseWrapper:
    """Make a connection that is as closed as this one, and has nothing of the driver's that could be touched."""
    made = type(closed)(closed.settings_dict, closed.alias)
    for name, put in vars(closed).items():
        if _is_refusal(put):
            setattr(made, name, put)
    return made


def _check(lender: Any) -> None:
    if getattr(lender, "is_lent", False):
        msg = "A handler cannot let jobs run: enqueue them, and the test lets them run after this one."
        raise KitError(msg)
    if in_transaction(lender):
        msg = (
            f"A transaction of the test is open on {lender.alias!r}, and a worker sees only what is committed. "
            "Let jobs run after the atomic() block."
        )
        raise KitError(msg)
    if lender.needs_rollback or _is_broken(lender):
        msg = (
            f"An earlier error broke the transaction of the test on {lender.alias!r}, so nothing can be read any more. "
            "Put what fails on purpose into an atomic() block of its own."
        )
        raise KitError(msg)


def _is_broken(lender: Any) -> bool:
    return bool(lender.vendor == "postgresql" and lender.connection.pgconn.transaction_status == _IN_ERROR)


def _give_back(lender: BaseDatabaseWrapper, made: BaseDatabaseWrapper) -> None:
    connections[lender.alias] = lender
    made.close()
