"""Code that must not stand anywhere in the package."""

from __future__ import annotations

import ast

from tests.architecture.sources import ROOT, called_name, imported_modules, sources

# Stored bytes must never become code.
UNSAFE_MODULES = {"cloudpickle", "dill", "jsonpickle", "marshal", "pickle", "shelve", "yaml"}
UNSAFE_CALLS = {"__import__", "compile", "eval", "exec"}
IMPORT_BY_NAME = {"import_module", "import_string"}
# Names from the settings or written in the code are imported here; a name from a row never is.
MAY_IMPORT_BY_NAME = {
    "django_jobs/__init__.py",
    "django_jobs/apps.py",
    "django_jobs/backends/task_names.py",
    "django_jobs/conf.py",
    "django_jobs/define/discovery.py",
    "django_jobs/define/django_task.py",  # the backends that TASKS names
    "django_jobs/define/registry.py",
    "django_jobs/effects/adapters/mail.py",
    "django_jobs/hooks.py",
    "django_jobs/management/crashtest.py",
    "django_jobs/outbox/destinations.py",
    "django_jobs/testing/__init__.py",
    "django_jobs/testing/crashtest.py",
    "django_jobs/testing/worker_settings.py",
}
VAGUE_NAMES = {"base_utils", "common", "helper", "helpers", "misc", "util", "utils"}
LINES_MAX = 500


def test_r53_nothing_can_turn_stored_bytes_into_code() -> None:
    """R53: no module that runs what it reads is imported, and nothing is evaluated."""
    found = []
    for source in sources():
        found += [f"{source.name}:{line} {name}" for line, name in imported_modules(source.tree) if _is_unsafe(name)]
        calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
        found += [f"{source.name}:{call.lineno} {called_name(call)}" for call in calls if _evaluates(call)]

    assert found == []


def test_only_settings_and_code_are_imported_by_name() -> None:
    """A dotted name is imported in the few files that take it from the settings or from the code, nowhere else."""
    found = [
        f"{source.name}:{node.lineno}"
        for source in sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and called_name(node) in IMPORT_BY_NAME
    ]

    assert {place.partition(":")[0] for place in found} <= MAY_IMPORT_BY_NAME, found


def test_no_module_has_a_name_that_says_nothing() -> None:
    """A module is named for what it holds."""
    everything = [source for folder in ("django_jobs", "testproject", "tests") for source in sources(ROOT / folder)]
    vague = [
        source.name for source in everything if VAGUE_NAMES & set(source.path.relative_to(ROOT).with_suffix("").parts)
    ]

    assert vague == []


def test_no_file_is_longer_than_people_read() -> None:
    """A file beyond 500 lines holds more than one subject."""
    everything = [source for folder in ("django_jobs", "testproject", "tests") for source in sources(ROOT / folder)]
    lengths = {source.name: len(source.path.read_text().splitlines()) for source in everything}

    assert {name: length for name, length in lengths.items() if length > LINES_MAX} == {}


def test_looks_find_what_they_look_for() -> None:
    """The looks above see an import and a call of the forbidden kind."""
    tree = ast.parse("from pickle import loads\neval('1')")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]

    assert any(_is_unsafe(name) for _, name in imported_modules(tree))
    assert all(_evaluates(call) for call in calls)


def _is_unsafe(module: str) -> bool:
    return module.partition(".")[0] in UNSAFE_MODULES


def _evaluates(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in UNSAFE_CALLS
