"""Finding the job types of a project, and saying which module stands in the way."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import override_settings

from django_jobs.define import registry
from django_jobs.exceptions import DefinitionError

GOOD = "from django_jobs import job\n@job(type='{name}.work')\ndef work(): pass\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an app ``found``, which is installed, and modules of no app."""
    before = dict(registry._jobs)
    app = tmp_path / "found"
    app.mkdir()
    (app / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with override_settings(INSTALLED_APPS=["django.contrib.contenttypes", "django_jobs", "found"]):
        yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in {"found", "loose"}]:
        del sys.modules[name]
    registry._jobs.clear()
    registry._jobs.update(before)


def test_every_module_of_an_app_is_imported(project: Path) -> None:
    """Job types may stand in jobs, tasks, events and schedules; an app without one of them is no error."""
    for module in ("jobs", "tasks", "events", "schedules"):
        (project / "found" / f"{module}.py").write_text(GOOD.format(name=module))

    registry.autodiscover()

    names = {name for name, _ in registry.definitions()}
    assert {"jobs.work", "tasks.work", "events.work", "schedules.work"} <= names


def test_modules_of_the_settings_are_imported(project: Path) -> None:
    """A project may keep job types outside of its apps."""
    (project / "loose.py").write_text(GOOD.format(name="loose"))
    with override_settings(DJANGO_JOBS={"IMPORTS": ["loose"]}):
        registry.autodiscover()

    assert registry.find("loose.work") is not None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def broken(:", "SyntaxError"),
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
    ],
)
def test_broken_module_is_named(project: Path, text: str, why: str) -> None:
    """R55: a worker must not start without its handlers, and whoever starts it must see which module is broken."""
    (project / "found" / "jobs.py").write_text(text)

    with pytest.raises(DefinitionError, match=rf"'found.jobs' could not be imported: {why}"):
        registry.autodiscover()


def test_missing_module_of_the_settings_is_named(project: Path) -> None:
    """R55: a name in the settings must exist."""
    with (
        override_settings(DJANGO_JOBS={"IMPORTS": ["loose.nowhere"]}),
        pytest.raises(DefinitionError, match=r"loose\.now"),
    ):
        registry.autodiscover()


def test_annotation_that_names_nothing_is_found_at_the_start(project: Path) -> None:
    """Not by the first job that runs."""
    (project / "found" / "jobs.py").write_text(
        "from __future__ import annotations\n" + GOOD.format(name="lost").replace("work()", "work(order: Nothing)")
    )

    with pytest.raises(DefinitionError, match=r"found.jobs.work cannot be resolved"):
        registry.autodiscover()
