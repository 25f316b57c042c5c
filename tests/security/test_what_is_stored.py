"""S1, S8, S20: stored text is data. It makes no object, no statement and no format."""

from __future__ import annotations

import ast
import json

from django_jobs.domain.canonical import canonical
from django_jobs.domain.identity import format_key
from django_jobs.domain.restore import restore
from tests.architecture.sources import called_name, sources

OBJECTS = {
    "py/object": "os.system",
    "py/reduce": [{"py/type": "os.system"}, {"py/tuple": ["true"]}],
    "__reduce__": ["os.system", ["true"]],
    "__class__": "subprocess.Popen",
    "$type": "System.Diagnostics.Process",
    "!!python/object/apply:os.system": ["true"],
}
# Names of tables, columns, indexes and constraints of our own stand in these statements; nothing that anybody passed.
MAY_BUILD_STATEMENTS = {
    "django_jobs/operate/canary.py",
    "django_jobs/schema/steps.py",
    "django_jobs/testing/lending.py",
    "django_jobs/testing/tables.py",
    "django_jobs/worker/line.py",
}
FORMATS = "{0.__class__.__init__.__globals__}"


def test_s01_payload_that_describes_an_object_stays_data() -> None:
    """S1: the marks by which other formats rebuild objects are plain members of a plain dict."""
    stored = canonical(OBJECTS)

    assert json.loads(stored) == OBJECTS
    assert restore(json.loads(stored), dict) == OBJECTS
    assert type(restore(json.loads(stored), dict)) is dict


def test_s08_no_statement_is_built_from_text() -> None:
    """S8: ``extra()`` is not used, and what is executed is a constant, a file of the package, or a listed exception."""
    found = [
        f"{source.name}:{call.lineno}"
        for source in sources()
        for call in ast.walk(source.tree)
        if isinstance(call, ast.Call) and _builds_a_statement(call)
    ]

    assert {place.partition(":")[0] for place in found} <= MAY_BUILD_STATEMENTS, found


def test_look_at_statements_finds_what_it_looks_for() -> None:
    """The look above sees the forbidden forms, and lets constants pass."""
    bad = [
        'cursor.execute(f"SELECT {x}")',
        'cursor.execute("SELECT %s" % x)',
        "jobs.extra(where=[x])",
        'RawSQL(f"{x}", ())',
    ]
    good = ['cursor.execute("SELECT 1")', "cursor.execute(sql, params)"]

    assert [_builds_a_statement(_call(text)) for text in [*bad, *good]] == [True] * 4 + [False] * 2


def test_s20_text_of_people_is_no_format() -> None:
    """S20: a value that looks like a format string stays what it is, in a key and in everything made of it."""
    key = format_key("order:{order_id}", {"order_id": FORMATS})

    assert "__globals__" in key
    assert "<" not in key
    assert format_key("order:{order_id}", {"order_id": FORMATS}) == key


def _call(text: str) -> ast.Call:
    expression = ast.parse(text, mode="eval").body
    assert isinstance(expression, ast.Call)
    return expression


def _builds_a_statement(call: ast.Call) -> bool:
    name = called_name(call)
    if name == "extra":
        return True
    if name not in {"execute", "executemany", "RawSQL", "raw"} or not call.args:
        return False
    # "a" + b and f"{a}"; what is put together before the call is caught by ruff's S608 where it begins like SQL
    return isinstance(call.args[0], ast.JoinedStr | ast.BinOp)
