"""The steps of an operation on a PostgreSQL table in use, each with a short lock or one that lets others pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import operations
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from django_jobs.schema import catalog
from django_jobs.schema.replacing import ReplaceConstraint, ReplaceIndex

Act = Callable[[BaseDatabaseSchemaEditor], None]


class Lock(Enum):
    """What a step does to others."""

    SHORT = "keeps everybody out of the table for a moment; gives way and comes back"
    PASSABLE = "looks at every row in a transaction; everybody reads and writes meanwhile"
    CONCURRENT = "builds or drops an index outside of transactions; everybody reads and writes meanwhile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One transaction of a migration, or one statement outside of any."""

    lock: Lock
    act: Act


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One operation of a migration, between the states of the models before and after it."""

    label: str
    operation: Operation
    before: ProjectState
    after: ProjectState

    def run_as_django(self, editor: BaseDatabaseSchemaEditor) -> None:
        """Run the operation as it is written."""
        self.operation.database_forwards(self.label, editor, self.before, self.after)

    def is_done(self, editor: BaseDatabaseSchemaEditor) -> bool:
        """Say whether an interrupted migration has done it."""
        return catalog.is_done(editor.connection, self.label, self.operation, self.before, self.after)

    def model(self) -> Any:
        """Return the model whose table it makes or changes; None for an operation of another sort."""
        made = self.operation.name if isinstance(self.operation, operations.CreateModel) else ""
        name = made or getattr(self.operation, "model_name", "")
        return self.after.apps.get_model(self.label, name) if name else None

    @property
    def table(self) -> str:
        """The name of that table."""
        return str(self.model()._meta.db_table)  # noqa: SLF001  Django's public door

    def applies(self, editor: BaseDatabaseSchemaEditor) -> bool:
        """Say whether the table belongs into this database; code and SQL of a migration ask for themselves."""
        model = self.model()
        return model is None or self.operation.allow_migrate_model(editor.connection.alias, model)


def steps(change: Change, editor: BaseDatabaseSchemaEditor, *, in_use: bool) -> list[Step]:
    """Return the steps of the operation; ``in_use`` is false for a table that this migration made."""
    operation = change.operation
    if in_use and isinstance(operation, ReplaceIndex):
        return _replace_index(change, operation.index)
    if in_use and isinstance(operation, ReplaceConstraint):
        return _replace_constraint(change, operation)
    if in_use and isinstance(operation, operations.AddIndex):
        return [_build_index(change, operation.index)]
    if in_use and isinstance(operation, operations.RemoveIndex):
        return [_drop_index(operation.name)]
    if in_use and isinstance(operation, operations.AddConstraint):
        return _add_constraint(change, operation.constraint)
    if in_use and isinstance(operation, operations.AddField):
        return _add_field(change, operation.name, editor)
    if not editor.collect_sql and change.is_done(editor):
        return []
    return [Step(lock=Lock.SHORT, act=change.run_as_django)]


def _build_index(change: Change, index: models.Index) -> Step:
    def act(editor: BaseDatabaseSchemaEditor) -> None:
        is_valid = None if editor.collect_sql else catalog.index_is_valid(editor.connection, index.name)
        if is_valid is False:  # an earlier try was interrupted: such an index costs writes and answers nothing
            editor.execute(f"DROP INDEX CONCURRENTLY {editor.quote_name(index.name)}", params=None)
        if not is_valid:
            editor.add_index(change.model(), index, concurrently=True)  # type: ignore[call-arg]

    return Step(lock=Lock.CONCURRENT, act=act)


def _drop_index(name: str) -> Step:
    def act(editor: BaseDatabaseSchemaEditor) -> None:
        editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {editor.quote_name(name)}", params=None)

    return Step(lock=Lock.CONCURRENT, act=act)


def _replace_index(change: Change, index: models.Index) -> list[Step]:
    beside = index.clone()
    beside.name = f"{index.name}_new"

    def swap(editor: BaseDatabaseSchemaEditor) -> None:
        old, new = editor.quote_name(index.name), editor.quote_name(beside.name)
        editor.execute(f"DROP INDEX IF EXISTS {old}", params=None)
        editor.execute(f"ALTER INDEX {new} RENAME TO {old}", params=None)

    return [_build_index(change, beside), Step(lock=Lock.SHORT, act=swap)]


def _replace_constraint(change: Change, operation: ReplaceConstraint) -> list[Step]:
    between = operation.without(change.label, change.before)

    def swap(editor: BaseDatabaseSchemaEditor) -> None:
        operation.remove.database_forwards(change.label, editor, change.before, between)
        _unchecked(change, operation.constraint, editor)

    return [Step(lock=Lock.SHORT, act=swap), _validate(change, operation.constraint.name)]


def _add_constraint(change: Change, constraint: models.BaseConstraint) -> list[Step]:
    if not isinstance(constraint, models.CheckConstraint):
        msg = f"{constraint.name}: only checks can be added to a table in use; build a unique index instead."
        raise NotImplementedError(msg)

    def act(editor: BaseDatabaseSchemaEditor) -> None:
        if editor.collect_sql or not change.is_done(editor):
            _unchecked(change, constraint, editor)

    return [Step(lock=Lock.SHORT, act=act), _validate(change, constraint.name)]


def _unchecked(change: Change, constraint: models.CheckConstraint, editor: BaseDatabaseSchemaEditor) -> None:
    """Add the constraint for rows that are written from now on."""
    editor.execute(f"{constraint.create_sql(change.model(), editor)} NOT VALID", params=None)


def _add_field(change: Change, name: str, editor: BaseDatabaseSchemaEditor) -> list[Step]:
    """Add the column without its check: PostgreSQL would read the whole table for it, with everybody kept out."""
    field = change.model()._meta.get_field(name)  # noqa: SLF001  Django's public door
    check = field.db_parameters(editor.connection)["check"]
    check_name = f"{change.table}_{field.column}_check"  # as PostgreSQL names it

    def act(editor: BaseDatabaseSchemaEditor) -> None:
        if not editor.collect_sql and change.is_done(editor):
            return
        with _without_check(field):
            change.run_as_django(editor)
        if check:
            table, quoted = editor.quote_name(change.table), editor.quote_name(check_name)
            editor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {quoted} CHECK ({check}) NOT VALID", params=None)

    return [Step(lock=Lock.SHORT, act=act), *([_validate(change, check_name)] if check else [])]


@contextmanager
def _without_check(field: models.Field[Any, Any]) -> Iterator[None]:
    field.db_check = lambda connection: None  # type: ignore[method-assign]  # noqa: ARG005
    try:
        yield
    finally:
        del field.db_check


def _validate(change: Change, name: str) -> Step:
    def act(editor: BaseDatabaseSchemaEditor) -> None:
        if not editor.collect_sql and catalog.constraint_is_valid(editor.connection, change.table, name) is not False:
            return
        text = f"ALTER TABLE {editor.quote_name(change.table)} VALIDATE CONSTRAINT {editor.quote_name(name)}"
        editor.execute(text, params=None)

    return Step(lock=Lock.PASSABLE, act=act)
