"""What the package offers by name."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import django_jobs

NEEDS_AN_EXTRA = {"django_jobs.backends.tasks"}  # importable with Django 6 or the extra "tasks" only


def modules_with_all() -> list[str]:
    """Return every module that declares ``__all__``, by its source so that none is imported here."""
    found = [django_jobs.__name__]
    for module in pkgutil.walk_packages(django_jobs.__path__, prefix="django_jobs."):
        spec = importlib.util.find_spec(module.name)
        if spec is not None and spec.origin and module.name not in NEEDS_AN_EXTRA and _declares_all(spec.origin):
            found.append(module.name)
    return found


def _declares_all(path: str) -> bool:
    with open(path) as file:  # noqa: PTH123  the loader gives text
        tree = ast.parse(file.read())
    return any(isinstance(node, ast.Name) and node.id == "__all__" for node in ast.walk(tree))


def public_names(module: ModuleType) -> set[str]:
    """Return the names without an underscore that a module has from this package; what it borrows elsewhere is left out."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and str(getattr(value, "__module__", "")).startswith("django_jobs")
    }


@pytest.mark.parametrize("name", modules_with_all())
def test_all_is_sorted_and_names_what_exists(name: str) -> None:
    """``__all__`` is sorted, names nothing twice, and each of its names exists."""
    module = importlib.import_module(name)

    assert list(module.__all__) == sorted(set(module.__all__))
    assert [missing for missing in module.__all__ if not hasattr(module, missing)] == []


def test_all_of_the_package_is_complete() -> None:
    """The package offers exactly what ``__all__`` names, and everything there is documented."""
    names = set(django_jobs.__all__)
    undocumented = [name for name in names if not getattr(getattr(django_jobs, name), "__doc__", None)]

    assert {"enqueue", "job", "effect"} & names, "the package offers none of its decorators"
    assert public_names(django_jobs) <= names
    assert undocumented == []


def test_import_of_the_package_loads_no_model() -> None:
    """Importing the package works before Django is set up, and leaves the models alone."""
    look = "import sys, django_jobs; sys.exit('django_jobs.models' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
