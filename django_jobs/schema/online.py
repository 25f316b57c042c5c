"""The base of the migrations: it changes tables that producers and workers use, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from django.db import migrations, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import operations
from django.db.migrations.state import ProjectState

from django_jobs.schema.patience import LOCK_WAIT, patiently, unhurried
from django_jobs.schema.steps import Change, Lock, Step, steps

_SETTINGS = {
    Lock.SHORT: f"SET LOCAL lock_timeout = '{LOCK_WAIT}ms'",
    Lock.PASSABLE: "SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0",
}


class OnlineMigration(migrations.Migration):
    """Operations as usual, run on PostgreSQL so that nobody waits long, and resumable after an interruption.

    Indexes of tables in use are built concurrently, checks are validated after they are added, and what needs a table
    for itself waits half a second at most to get it, or gives way and comes again. Each step is a transaction of its
    own, so an interrupted migration goes on where it ended; what cannot tell that it is done (code, SQL, altered
    fields) may run twice. On SQLite, and inside a transaction of the caller, everything is done in one transaction.
    """

    atomic = False

    def apply(
        self, project_state: ProjectState, schema_editor: BaseDatabaseSchemaEditor, collect_sql: bool = False
    ) -> ProjectState:
        """Run the operations forwards."""
        connection = schema_editor.connection
        alone = not connection.in_atomic_block and connection.get_autocommit()
        online = connection.vendor == "postgresql" and alone
        made = {item.name_lower for item in self.operations if isinstance(item, operations.CreateModel)}
        with _nothing() if online or collect_sql else _at_once(schema_editor):
            for operation in self.operations:
                before = project_state.clone()
                operation.state_forwards(self.app_label, project_state)
                change = Change(label=self.app_label, operation=operation, before=before, after=project_state)
                in_use = getattr(operation, "model_name", "").lower() not in {"", *made}
                if collect_sql:
                    _write_down(change, schema_editor, in_use=in_use and online)
                elif online:
                    _run_online(change, schema_editor, in_use=in_use)
                elif change.applies(schema_editor) and not change.is_done(schema_editor):
                    change.run_as_django(schema_editor)
        return project_state

    def unapply(
        self, project_state: ProjectState, schema_editor: BaseDatabaseSchemaEditor, collect_sql: bool = False
    ) -> ProjectState:
        """Run the operations backwards, all in one transaction: nothing else may use the tables meanwhile."""
        with _nothing() if collect_sql else _at_once(schema_editor):
            return super().unapply(project_state, schema_editor, collect_sql)


def _run_online(change: Change, editor: BaseDatabaseSchemaEditor, *, in_use: bool) -> None:
    if not change.applies(editor):
        return
    what = change.operation.describe()
    for step in steps(change, editor, in_use=in_use):
        patiently(editor.connection, what, partial(_take, step, editor.connection))


def _take(step: Step, connection: BaseDatabaseWrapper) -> None:
    if step.lock is Lock.CONCURRENT:
        with unhurried(connection), connection.schema_editor(atomic=False) as own:
            step.act(own)
        return
    with connection.schema_editor(atomic=True) as own:
        own.execute(_SETTINGS[step.lock], params=None)
        step.act(own)


def _write_down(change: Change, editor: BaseDatabaseSchemaEditor, *, in_use: bool) -> None:
    """Collect what the operation would run, for ``sqlmigrate``."""
    lines = editor.collected_sql
    lines += ["--", f"-- {change.operation.describe()}", "--"]
    if not change.operation.reduces_to_sql:
        lines.append("-- THIS OPERATION CANNOT BE WRITTEN AS SQL")
        return
    if not change.applies(editor):
        return
    plain = [Step(lock=Lock.SHORT, act=change.run_as_django)]
    for step in steps(change, editor, in_use=True) if in_use else plain:
        start = len(lines)
        step.act(editor)
        _run_deferred(editor)
        if editor.connection.vendor == "postgresql" and step.lock is not Lock.CONCURRENT and len(lines) > start:
            lines[start:start] = ["BEGIN;", f"{_SETTINGS[step.lock]};"]
            lines.append("COMMIT;")


@contextmanager
def _at_once(editor: BaseDatabaseSchemaEditor) -> Iterator[None]:
    with transaction.atomic(using=editor.connection.alias):
        yield
        _run_deferred(editor)


def _run_deferred(editor: BaseDatabaseSchemaEditor) -> None:
    for text in editor.deferred_sql:
        editor.execute(text, None)
    editor.deferred_sql.clear()


@contextmanager
def _nothing() -> Iterator[None]:
    yield
