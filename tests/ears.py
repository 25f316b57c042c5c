"""A plain connection that listens, for tests that ask what was notified."""

from __future__ import annotations

import psycopg

from django_jobs.store.notify import CHANNEL


class Ear:
    """Hears what is notified on a database; usable as a context manager."""

    def __init__(self, url: str) -> None:
        self._raw = psycopg.connect(url, autocommit=True)
        self._raw.execute(f"LISTEN {CHANNEL}")

    def __enter__(self) -> Ear:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    def heard(self) -> list[str]:
        """Return the payloads since the last call: all that were committed before it."""
        self._raw.execute("SELECT 1")  # the server sends what is pending with the answer
        return [note.payload for note in self._raw.notifies(timeout=0)]
