"""A cursor whose statements the server plans once per connection."""

from __future__ import annotations

from typing import Any

import psycopg

ONLY_WHEN_ASKED = 2**31


class PreparedCursor(psycopg.Cursor[Any]):
    """Binds on the server and prepares each statement."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        """Run, with the statement kept prepared."""
        if self.connection.prepare_threshold is None:  # Django's default switches preparing off altogether
            self.connection.prepare_threshold = ONLY_WHEN_ASKED
        return super().execute(query, params, prepare=True, **options)
