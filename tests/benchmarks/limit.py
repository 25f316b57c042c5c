"""The limit line: claim one row, complete one row, two commits per job, by raw psycopg on a bare table."""

from __future__ import annotations

import threading
import time

import psycopg

SETUP = """
DROP TABLE IF EXISTS limit_jobs;
CREATE TABLE limit_jobs (id bigint PRIMARY KEY, state text NOT NULL DEFAULT 'queued', owner int, expires timestamptz);
CREATE INDEX limit_ready ON limit_jobs (id) WHERE state = 'queued';
"""
CLAIM = """
WITH c AS MATERIALIZED (
    SELECT id FROM limit_jobs WHERE state = 'queued' ORDER BY id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE limit_jobs j SET state = 'running', owner = 1, expires = now() + interval '1 minute' FROM c WHERE j.id = c.id
RETURNING j.id
"""
DONE = "UPDATE limit_jobs SET state = 'done', owner = NULL, expires = NULL WHERE id = %s AND state = 'running'"


def fill(dsn: str, rows: int) -> None:
    """Make the table and its rows."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SETUP)
        connection.execute("INSERT INTO limit_jobs (id) SELECT * FROM generate_series(1, %s)", [rows])
        connection.execute("VACUUM ANALYZE limit_jobs")


def drain(dsn: str, threads: int) -> None:
    """Claim and complete until nothing is left."""

    def work() -> None:
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=1) as connection:
            while row := connection.execute(CLAIM).fetchone():
                connection.execute(DONE, row)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def rate(dsn: str, *, rows: int, threads: int) -> float:
    """Return jobs per second of the limit line with this many threads in one process."""
    fill(dsn, rows)
    began = time.perf_counter()
    drain(dsn, threads)
    return rows / (time.perf_counter() - began)


def insert_rate(dsn: str, *, rows: int) -> float:
    """Return single-row inserts per second, one commit each, on one connection."""
    fill(dsn, 0)
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=1) as connection:
        began = time.perf_counter()
        for number in range(rows):
            connection.execute("INSERT INTO limit_jobs (id) VALUES (%s)", [number])
        return rows / (time.perf_counter() - began)
