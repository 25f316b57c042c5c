"""Django's tasks as this installation has them: ``django.tasks`` (6.0 and later), or the backport ``django-tasks``."""

from __future__ import annotations

import importlib
from typing import Any

from django.core.exceptions import ImproperlyConfigured


def _found() -> tuple[Any, Any, Any, Any, Any]:
    for package, normalizing in (("django.tasks", "django.utils.json"), ("django_tasks", "django_tasks.utils")):
        try:
            tasks = importlib.import_module(package)
        except ImportError:
            continue
        parts = [importlib.import_module(f"{package}.{name}") for name in ("base", "backends.base", "exceptions")]
        base, backends, exceptions = parts
        return tasks, base, backends.BaseTaskBackend, exceptions, importlib.import_module(normalizing).normalize_json
    msg = (
        "django_jobs.backends.tasks needs Django 6.0, or the backport on Django 5.2: "
        "pip install 'django-durable-jobs[tasks]'."
    )
    raise ImproperlyConfigured(msg)


tasks, base, BaseTaskBackend, _exceptions, normalize_json = _found()

Task: Any = base.Task
TaskContext: Any = base.TaskContext
TaskError: Any = base.TaskError
TaskResult: Any = base.TaskResult
TaskResultStatus: Any = base.TaskResultStatus
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
TaskResultMismatch: Any = _exceptions.TaskResultMismatch
# The backport has other names for two of the errors.
InvalidTask: Any = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError
InvalidTaskBackend: Any = getattr(_exceptions, "InvalidTaskBackend", None) or _exceptions.InvalidTaskBackendError


def signals() -> Any:
    """Return the module of the signals; it connects receivers of its own, so not at import."""
    return importlib.import_module(f"{tasks.__name__}.signals")
