"""What `manage.py jobs verify` says about the database after the run."""

from __future__ import annotations

from io import StringIO

from django.core.management import call_command
from django.core.management.base import CommandError


def verify() -> str:
    """Return what is wrong with the rows, or an empty text."""
    output = StringIO()
    try:
        call_command("jobs", "verify", stdout=output, stderr=output)
    except CommandError as error:
        return f"{output.getvalue()}{error}".strip()
    except SystemExit as error:
        return "" if not error.code else f"{output.getvalue()}(exit status {error.code})".strip()
    return ""
