"""The version of the package that runs."""

from __future__ import annotations

import functools
from importlib import metadata

DISTRIBUTION = "django-durable-jobs"


@functools.cache
def version() -> str:
    """Return the installed version, or ``unknown`` where the package runs from its source."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"
