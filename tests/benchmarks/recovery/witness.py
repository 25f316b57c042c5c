"""What the jobs really did, on a server that no fault hits."""

from __future__ import annotations

import psycopg

from tests.benchmarks.recovery.judgement import Execution, Request

SETUP = """
CREATE TABLE execution (
    id bigserial PRIMARY KEY, key text NOT NULL, pid int NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    returned_at timestamptz, raised_at timestamptz);
-- No unique constraint, on purpose: what happens twice must be seen twice.
CREATE TABLE request (
    id bigserial PRIMARY KEY, key text NOT NULL, provider_key text, execution bigint,
    at timestamptz NOT NULL DEFAULT clock_timestamp());
"""


class Witness:
    """Reads the witness tables of one run."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(SETUP)

    def executions(self, *, running: bool = False) -> list[Execution]:
        """Return every start of a handler, oldest first; ``running``: those that neither returned nor raised."""
        rows = self._connection.execute(
            "SELECT id, key, pid, extract(epoch FROM started_at)::float8, extract(epoch FROM returned_at)::float8, "
            "EXISTS (SELECT FROM request r WHERE r.execution = e.id) FROM execution e "
            f"{'WHERE returned_at IS NULL AND raised_at IS NULL' if running else ''} ORDER BY id"
        ).fetchall()
        return [Execution(*row) for row in rows]

    def requests(self) -> list[Request]:
        """Return every request for an effect, oldest first."""
        rows = self._connection.execute("SELECT key, provider_key FROM request ORDER BY id").fetchall()
        return [Request(*row) for row in rows]

    def counts(self) -> tuple[int, int, int]:
        """Return how many executions began and ended, and how many requests came: it changes while anything moves."""
        row = self._connection.execute(
            "SELECT (SELECT count(*) FROM execution), (SELECT count(coalesce(returned_at, raised_at)) FROM execution), "
            "(SELECT count(*) FROM request)"
        ).fetchone()
        assert row is not None
        return (row[0], row[1], row[2])

    def close(self) -> None:
        """End the connection."""
        self._connection.close()
