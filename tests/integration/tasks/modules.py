"""Modules of tasks that a test writes, and settings with several backends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from django.test import override_settings

from django_jobs.backends.task_declared import _declared
from django_jobs.backends.task_names import tasks

DURABLE = "django_jobs.backends.tasks.DurableBackend"
IMMEDIATE = f"{tasks.__name__}.backends.immediate.ImmediateBackend"
HEAD = f"from {tasks.__name__} import task\n"


def run_again(module: ModuleType, source: str) -> None:
    """Execute a module's source, as an import or a reload does."""
    module.__spec__ = ModuleSpec(module.__name__, None)
    exec(compile(HEAD + source, f"{module.__name__}.py", "exec"), module.__dict__)


@contextmanager
def written(source: str, name: str = "tests_written_tasks") -> Iterator[ModuleType]:
    """Import a module with this source; afterwards nobody knows it."""
    module = sys.modules[name] = ModuleType(name)
    try:
        run_again(module, source)
        yield module
    finally:
        del sys.modules[name]
        for path in [path for path in _declared if path.startswith(f"{name}.")]:
            del _declared[path]


def backends(**more: dict[str, Any]) -> override_settings:
    """Have more backends beside the default one."""
    return override_settings(TASKS={"default": {"BACKEND": DURABLE, "QUEUES": []}, **more})
