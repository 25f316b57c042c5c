"""A migration operation whose SQL is for one kind of database only."""

from __future__ import annotations

from typing import Any

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import ProjectState


class VendorSQL(migrations.RunSQL):
    """``RunSQL`` that does nothing on other databases; ``sqlmigrate`` then shows an empty operation."""

    def __init__(self, vendor: str, sql: Any, reverse_sql: Any = migrations.RunSQL.noop, **kwargs: Any) -> None:
        self.vendor = vendor
        super().__init__(sql, reverse_sql, **kwargs)

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Tell how to write this operation down."""
        name, args, kwargs = super().deconstruct()
        return name, list(args), {"vendor": self.vendor, **kwargs}

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Run on the one kind of database."""
        if schema_editor.connection.vendor == self.vendor:
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Undo on the one kind of database."""
        if schema_editor.connection.vendor == self.vendor:
            super().database_backwards(app_label, schema_editor, from_state, to_state)
