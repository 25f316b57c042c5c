"""Every migration after the first can run while producers and workers use the tables, and leaves old code working."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from django_jobs.schema import OnlineMigration, ReplaceConstraint, ReplaceIndex, VendorSQL
from tests.old_rows import LABEL, names

STORAGE = re.compile(r"ALTER TABLE \w+ (SET|RESET) \([^()]*\)")  # lets everybody pass
CODE_THAT_READS_NO_BIG_TABLE = {"store_namespace"}
# What says nothing to the database.
WORDS_ALONE = {"choices", "default", "verbose_name", "help_text", "blank", "validators", "related_name", "max_length"}
SAFE = (
    migrations.AddIndex, migrations.AlterModelManagers, migrations.AlterModelOptions, migrations.CreateModel,
    migrations.RemoveConstraint, migrations.RemoveIndex, ReplaceIndex,
)  # fmt: skip
CHECK_ONLY = "it locks the table while it is built. Build a unique index with AddIndex instead."
NOT_MEANWHILE = "rows and queries would be without it meanwhile. Write ReplaceIndex or ReplaceConstraint instead."
OLD_CODE = "old code names only the columns it knows. Say null=True or db_default=…"
BESIDE = "it may rewrite, rename, remove or lock what old code uses. Add a new column or table beside it instead."
LATER = "old code still needs it. Remove it in a release of its own, when no process with that code can be left."


def objections(migration: Any, state: ProjectState) -> Iterator[str]:
    """Yield what is wrong with a migration, each with what to do instead; the state moves on to its end."""
    if not issubclass(migration, OnlineMigration):
        yield "derive Migration from django_jobs.schema.OnlineMigration, so that nobody waits for it."
    made = {item.name_lower for item in migration.operations if isinstance(item, migrations.CreateModel)}
    removed: set[str] = set()
    for operation in migration.operations:
        in_use = getattr(operation, "model_name", "").lower() not in made
        if in_use and (why := _objection(operation, removed, state)):
            yield f"{operation.describe()}: {why}"
        if isinstance(operation, migrations.RemoveIndex | migrations.RemoveConstraint):
            removed.add(operation.name)
        operation.state_forwards(LABEL, state)


def _objection(operation: Operation, removed: set[str], state: ProjectState) -> str:
    added = getattr(operation, "index", None) or getattr(operation, "constraint", None)
    if added is not None and added.name in removed:
        return NOT_MEANWHILE
    if isinstance(operation, migrations.AddField):
        return _objection_to_column(operation.field)
    if isinstance(operation, migrations.AlterField):
        former = state.models[LABEL, operation.model_name_lower].fields[operation.name]
        return "" if _is_as_wide(former, operation.field) else BESIDE
    if isinstance(operation, migrations.AddConstraint | ReplaceConstraint):
        return "" if isinstance(operation.constraint, models.CheckConstraint) else CHECK_ONLY
    if isinstance(operation, VendorSQL):
        texts = operation.sql if isinstance(operation.sql, list) else [operation.sql]
        return "" if all(map(STORAGE.fullmatch, texts)) else "SQL may only set storage parameters. Write an operation."
    if isinstance(operation, migrations.RunPython):
        is_known = operation.code.__name__ in CODE_THAT_READS_NO_BIG_TABLE
        return (
            "" if is_known else "fill rows in batches by a command; a function that reads no big table is named here."
        )
    if isinstance(operation, migrations.RemoveField | migrations.DeleteModel):
        return LATER
    return "" if isinstance(operation, SAFE) else BESIDE


def _objection_to_column(field: Any) -> str:
    if field.remote_field is not None and field.db_constraint:
        return "a foreign key locks both tables. Say db_constraint=False."
    if field.unique or field.db_index:
        return "its index would be built with everybody kept out. Add it by an operation of its own, AddIndex."
    return "" if field.null or field.db_default is not models.NOT_PROVIDED else OLD_CODE


def _is_as_wide(former: Any, field: Any) -> bool:
    """Say whether a column takes all that it took, and PostgreSQL need not look at its rows."""

    def told(one: Any) -> tuple[str, dict[str, Any]]:
        _, path, _, options = one.deconstruct()
        return path, {name: value for name, value in options.items() if name not in WORDS_ALONE}

    return told(former) == told(field) and (former.max_length or 0) <= (field.max_length or 0)


def _state_before(name: str) -> ProjectState:
    earlier = names()[names().index(name) - 1]
    return MigrationLoader(None).project_state((LABEL, earlier))


@pytest.mark.parametrize("name", names()[1:])
def test_migration_keeps_nobody_waiting_and_old_code_working(name: str) -> None:
    """The migration is online and made of operations that expand; the failure says what to write instead."""
    migration = MigrationLoader(None).disk_migrations[LABEL, name]

    assert list(objections(type(migration), _state_before(name))) == []


INDEX = models.Index(fields=["owner"], name="an_index")
UNIQUE = models.UniqueConstraint(fields=["owner"], name="only_once")
CHECK = models.CheckConstraint(condition=models.Q(priority__gt=0), name="a_check")


@pytest.mark.parametrize(
    ("operations", "why"),
    [
        ([migrations.AddField("job", "more", models.TextField(default=""))], OLD_CODE),
        ([migrations.AddField("job", "more", models.TextField(null=True, db_index=True))], "AddIndex"),
        (
            [migrations.AddField("job", "other", models.ForeignKey("django_jobs.job", models.CASCADE, null=True))],
            "False",
        ),
        ([migrations.RemoveField("job", "owner")], LATER),
        ([migrations.DeleteModel("worker")], LATER),
        ([migrations.RenameField("job", "owner", "team")], BESIDE),
        ([migrations.RenameModel("worker", "hand")], BESIDE),
        ([migrations.AlterField("job", "owner", models.CharField(max_length=5, default="", blank=True))], BESIDE),
        ([migrations.AlterField("job", "owner", models.TextField(default="", blank=True))], BESIDE),
        ([migrations.AddConstraint("job", UNIQUE)], CHECK_ONLY),
        ([migrations.RemoveIndex("job", "an_index"), migrations.AddIndex("job", INDEX)], NOT_MEANWHILE),
        ([migrations.RemoveConstraint("job", "a_check"), migrations.AddConstraint("job", CHECK)], NOT_MEANWHILE),
        ([migrations.RunSQL("UPDATE django_jobs_job SET owner = 'x'")], BESIDE),
        ([VendorSQL("postgresql", ["CREATE INDEX x ON django_jobs_job (owner)"])], "storage parameters"),
        ([migrations.RunPython(print)], "in batches"),
    ],
)
def test_what_would_lock_or_break_is_objected_to(operations: list[Operation], why: str) -> None:
    """Each operation that keeps others waiting, or that old code does not survive, is named with what to do instead."""
    state = MigrationLoader(None).project_state((LABEL, names()[-1]))
    state.add_index(LABEL, "job", INDEX)
    state.add_constraint(LABEL, "job", CHECK)

    told = list(objections(type("Migration", (OnlineMigration,), {"operations": operations}), state))

    assert len(told) == 1
    assert why in told[0]


def test_migration_of_djangos_own_class_is_objected_to() -> None:
    """What ``makemigrations`` writes must be given the base class that gives way."""
    plain = type("Migration", (migrations.Migration,), {"operations": []})

    assert [told for told in objections(plain, ProjectState()) if "OnlineMigration" in told]
