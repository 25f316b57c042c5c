"""Fail when the installed wheel lacks a file of the source tree or a module of it does not import.

Called as ``python -I check_wheel.py SOURCE`` with the package's source folder, in an environment that holds the wheel. The
isolated mode (-I) keeps the source tree itself from being imported.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import django
from django.conf import settings

SETTINGS = {
    "INSTALLED_APPS": ["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django_jobs"],
    "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    "SECRET_KEY": "for-this-check-only",
}
NEEDS_PYTEST = {"django_jobs.testing.plugin"}  # which the wheel does not bring
PLUGIN = ("pytest11", "django_jobs", "django_jobs.testing.plugin")
MUST_EXIST = ("py.typed", "**/*.py", "store/sql/postgresql/*.sql", "store/sql/sqlite/*.sql")


def files_of(folder: Path) -> set[str]:
    """Return the relative path of every file that belongs to the package."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }


def complaints(source: Path, installed: Path) -> list[str]:
    """Return what is wrong with the files of the wheel."""
    found = [
        f"the source has no {pattern}: nothing was checked" for pattern in MUST_EXIST if not any(source.glob(pattern))
    ]
    if installed == source:
        found.append(f"{installed} is the source tree: the wheel was not looked at")
    return found + [f"missing from the wheel: {name}" for name in sorted(files_of(source) - files_of(installed))]


def import_all(installed: Path) -> list[str]:
    """Import every module of the package; return the complaints."""
    settings.configure(**SETTINGS)
    django.setup()
    found = []
    for path in sorted(installed.rglob("*.py")):
        parts = path.relative_to(installed.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name in NEEDS_PYTEST and importlib.util.find_spec("pytest") is None:
            continue
        try:
            importlib.import_module(name)
        except Exception as error:  # every kind of failure is a complaint
            found.append(f"{name} does not import: {error!r}")
    return found


def entry_points() -> list[str]:
    """Return the complaint if pytest would not find the plugin."""
    found = importlib.metadata.entry_points(group=PLUGIN[0])
    return [] if PLUGIN in {(item.group, item.name, item.value) for item in found} else ["pytest finds no plugin"]


def main(source_folder: str) -> str | None:
    """Return the complaints as text, or None."""
    spec = importlib.util.find_spec("django_jobs")
    if spec is None or spec.origin is None:
        return "django_jobs is not installed"
    installed = Path(spec.origin).parent
    found = [*complaints(Path(source_folder).resolve(), installed.resolve()), *import_all(installed), *entry_points()]
    if found:
        return "\n".join(found)
    print(f"{len(files_of(installed))} files, every module imports")
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
