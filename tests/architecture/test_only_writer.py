"""Only the store writes the tables of the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.sources import called_name, names_in, rooms_of, sources

WRITERS = {"store", "migrations"}
# Rooms that work with jobs all the time: if one of them is not looked at, the test looks in the wrong place.
MUST_BE_SEEN = {"define", "effects", "enqueue", "worker"}

ALWAYS_A_WRITE = {
    name
    for stem in ("bulk_create", "bulk_update", "get_or_create", "update_or_create", "save_base")
    for name in (stem, f"a{stem}")
}
WRITE_OF_AN_INSTANCE = {"save", "asave", "delete", "adelete"}
WRITE_OF_A_QUERYSET = {"create", "acreate", "update", "aupdate"}
SIGNS_OF_A_QUERYSET = {
    "_base_manager", "_default_manager", "all", "exclude", "filter", "objects", "order_by", "select_for_update", "using",
}  # fmt: skip
WRITE_IN_SQL = re.compile(r"\b(INSERT\s+INTO|UPDATE|DELETE\s+FROM|TRUNCATE)\s+\"?django_jobs_", re.IGNORECASE)


def writes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and kind of everything that writes a row of a model or a table of the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_a_write(node):
            yield node.lineno, called_name(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and WRITE_IN_SQL.search(node.value):
            yield node.lineno, "SQL"


def _is_a_write(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    name, receiver = call.func.attr, names_in(call.func.value)
    if name in ALWAYS_A_WRITE:
        return True
    if name in WRITE_OF_AN_INSTANCE:
        return not any("storage" in part.lower() for part in receiver)  # files have these verbs too
    return name in WRITE_OF_A_QUERYSET and bool(receiver & SIGNS_OF_A_QUERYSET)


def test_nothing_outside_the_store_writes_rows() -> None:
    """No room but the store saves, changes or deletes a row, by the ORM or by SQL."""
    looked_at = [source for source in sources() if source.room not in WRITERS]
    found = [f"{source.name}:{line} {kind}" for source in looked_at for line, kind in writes(source.tree)]

    assert rooms_of(looked_at) >= MUST_BE_SEEN
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "job.save(update_fields=['state'])",
        "Job.objects.filter(pk=1).update(state='succeeded')",
        "Job.objects.using(alias).create(state='queued')",
        "await Job.objects.aupdate(state='failed')",
        "manager.bulk_create(jobs)",
        "attempt.delete()",
        "cursor.execute('update django_jobs_job set state = 1')",
    ],
)
def test_look_finds_writes(code: str) -> None:
    """The look above sees every usual way to write a row."""
    assert list(writes(ast.parse(code, mode="exec") if "await" not in code else _in_coroutine(code)))


@pytest.mark.parametrize(
    "code", ["digest.update(b'x')", "headers.update(a=1)", "storage.save('name', data)", "Job.objects.all()"]
)
def test_look_leaves_other_verbs_alone(code: str) -> None:
    """Digests, mappings, files and reads are no writes."""
    assert list(writes(ast.parse(code))) == []


def _in_coroutine(code: str) -> ast.Module:
    return ast.parse(f"async def run():\n    {code}")
