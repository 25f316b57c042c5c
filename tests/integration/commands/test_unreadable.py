"""What a terminal of another encoding sends: bytes that are no text are refused before any statement."""

from __future__ import annotations

import pytest
from django.core.management import CommandError
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.integration.commands.test_jobs_command import jobs

UNREADABLE = {
    "list by type": ("list", "--type", "\udcff"),
    "list by subject": ("list", "--subject", "a\udc80b"),
    "list by key with NUL": ("list", "--key", "a\x00"),
    "show": ("show", "\udcff"),
    "pause for a reason": ("pause", "queue", "payments", "--as", "ann", "--reason", "\udcff"),
    "pause by somebody": ("pause", "queue", "payments", "--as", "\udcff", "--reason", "down"),
    "run-schedule": ("run-schedule", "\udcff"),
    "decide": ("discard", "0199aaaa", "--as", "ann", "--owner", "ops", "--reason", "\udcff"),
    "database": ("pauses", "--database", "\udcff"),
}


@pytest.mark.django_db
@pytest.mark.parametrize("name", UNREADABLE)
def test_bytes_that_are_no_text_are_a_usage_error(name: str) -> None:
    """A terminal of another encoding sends such; no statement is run with them."""
    with (
        CaptureQueriesContext(connection) as queries,
        pytest.raises(CommandError, match=r"no UTF-8, or NUL") as refused,
    ):
        jobs(*UNREADABLE[name])
    assert (refused.value.returncode, len(queries)) == (2, 0)
