"""The statements of a block, for tests that count them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from django.test.utils import CaptureQueriesContext

# What opens, bounds and ends a transaction; inside a test's transaction there is more of it than on a site.
_FRAME = re.compile(r"(BEGIN|COMMIT|SAVEPOINT|RELEASE|ROLLBACK|SELECT set_config|SELECT current_setting)")


@contextmanager
def asked() -> Iterator[list[str]]:
    """Give the statements of a block, without what frames a transaction and bounds it."""
    found: list[str] = []
    with CaptureQueriesContext(connection) as captured:
        yield found
    found += [query["sql"] for query in captured if not _FRAME.match(query["sql"])]
