"""Operations that put a new index or constraint in the place of the one with the same name."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import operations
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState


class _Replace(Operation):
    """Remove what has the name and add what takes its place; backwards the former comes back."""

    def __init__(self, remove: Any, add: Any, **written_down: Any) -> None:
        self.remove, self.add, self.model_name, self._written_down = remove, add, add.model_name, written_down

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Tell how to write this operation down."""
        return type(self).__name__, [], {"model_name": self.model_name, **self._written_down}

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Swap the one for the other in the state of the models."""
        self.remove.state_forwards(app_label, state)
        self.add.state_forwards(app_label, state)

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Remove, then add."""
        between = self.without(app_label, from_state)
        self.remove.database_forwards(app_label, schema_editor, from_state, between)
        self.add.database_forwards(app_label, schema_editor, between, to_state)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Remove what was added, then bring the former back."""
        between = self.without(app_label, from_state)
        self.add.database_backwards(app_label, schema_editor, from_state, between)
        self.remove.database_backwards(app_label, schema_editor, between, to_state)

    def describe(self) -> str:
        """Say what is replaced, for ``migrate --plan`` and ``sqlmigrate``."""
        return f"Replace {self.remove.name} on model {self.model_name}"

    def without(self, app_label: str, state: ProjectState) -> ProjectState:
        """Return the state in which neither of the two is there."""
        between = state.clone()
        self.remove.state_forwards(app_label, between)
        return between


class ReplaceIndex(_Replace):
    """Build the new index beside the old one and swap the names at its end, so that queries are never without."""

    def __init__(self, model_name: str, index: models.Index) -> None:
        remove = operations.RemoveIndex(model_name, index.name)
        super().__init__(remove, operations.AddIndex(model_name, index), index=index)
        self.index = index


class ReplaceConstraint(_Replace):
    """Put a wider check in the place of a narrower one, in one moment; the rows are looked at afterwards."""

    def __init__(self, model_name: str, constraint: models.CheckConstraint) -> None:
        remove = operations.RemoveConstraint(model_name, constraint.name)
        super().__init__(remove, operations.AddConstraint(model_name, constraint), constraint=constraint)
        self.constraint = constraint
