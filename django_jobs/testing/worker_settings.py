"""The settings module of workers that a test starts: the project's own, on the databases of the test.

``DJANGO_JOBS_KIT`` names the project's module and says what differs, as JSON.
"""

from __future__ import annotations

import copy
import importlib
import json
import os
from typing import Any

VARIABLE = "DJANGO_JOBS_KIT"


def settings_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the project with what differs for the test put over them."""
    module = importlib.import_module(given["settings"])
    found = {name: copy.copy(getattr(module, name)) for name in dir(module) if name.isupper()}
    databases = {alias: dict(values) for alias, values in found.get("DATABASES", {}).items()}
    for alias, values in given["databases"].items():
        databases.setdefault(alias, {}).update(values)
    rules = dict(found.get("DJANGO_JOBS", {}))
    for name, value in given["rules"].items():
        rules[name] = _typed(value)
    return {**found, "DATABASES": databases, "DJANGO_JOBS": rules}


def _typed(value: Any) -> Any:
    """Read what JSON cannot hold."""
    from datetime import timedelta

    return timedelta(seconds=value["seconds"]) if isinstance(value, dict) and set(value) == {"seconds"} else value


if VARIABLE in os.environ:
    globals().update(settings_of(json.loads(os.environ[VARIABLE])))
