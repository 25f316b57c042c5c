"""Plans as workers get them: prepared, made without knowing the values, and run to see what they read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_jobs.store import statements
from django_jobs.store.prepared import numbered

Node = dict[str, Any]
BIG = {"django_jobs_job", "django_jobs_idempotencykey", "django_jobs_attempt", "django_jobs_jobpayload"}


@dataclass(frozen=True, slots=True)
class Run:
    """One statement as it ran: all nodes of its plan, the pages that it touched, and its milliseconds."""

    nodes: tuple[Node, ...]
    buffers: int
    milliseconds: float

    @property
    def indexes(self) -> set[str]:
        """The indexes that were used, without the package's prefix."""
        return {node["Index Name"].removeprefix("django_jobs_") for node in self.nodes if "Index Name" in node}

    @property
    def whole_tables(self) -> set[str]:
        """The big tables that were read from end to end."""
        return {
            node["Relation Name"]
            for node in self.nodes
            if node["Node Type"] in {"Seq Scan", "Parallel Seq Scan"}
            and node.get("Relation Name") in BIG
            and node.get("Actual Loops", 1)
        }

    @property
    def removed(self) -> int:
        """How many rows were read for nothing, at most by one node."""
        kinds = ("Rows Removed by Filter", "Rows Removed by Join Filter", "Rows Removed by Index Recheck")
        return max(node.get(kind, 0) * node.get("Actual Loops", 1) for node in self.nodes for kind in kinds)

    @property
    def rows(self) -> int:
        """How many rows it returned."""
        return int(self.nodes[0]["Actual Rows"])


def nodes_of(plan: Node) -> Iterator[Node]:
    """Yield a node and everything below it."""
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes_of(child)


def explained(sql: str, params: Any = None, *, options: str = "FORMAT JSON") -> Run:
    """Explain one statement; with ``ANALYZE`` among the options it runs."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN ({options}) {sql}", params)
        found = cursor.fetchone()[0][0]
    plan = found["Plan"]
    buffers = plan.get("Shared Hit Blocks", 0) + plan.get("Shared Read Blocks", 0)
    return Run(tuple(nodes_of(plan)), buffers, found.get("Execution Time", 0.0))


def prepare(name: str) -> list[str]:
    """Prepare a statement of the store as ``this``; returns the names of its parameters in their order."""
    text, names = numbered(statements.load("postgresql", name)[0])
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
        cursor.execute(f"PREPARE this AS {text.decode()}")
    return list(names)


def execute(names: list[str], params: dict[str, Any], *, options: str = "FORMAT JSON") -> Run:
    """Explain the prepared statement with these values."""
    values = {"now": None, **params}
    call = f"EXECUTE this({', '.join(['%s'] * len(names))})" if names else "EXECUTE this"
    return explained(call, [values[name] for name in names], options=options)


def ran(name: str, params: dict[str, Any], *, times: int = 1) -> Run:
    """Run a statement of the store the way a worker's connection plans it, undo it, and return its best run."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        names = prepare(name)
        runs = []
        for _ in range(times):
            point = transaction.savepoint()
            runs.append(execute(names, params, options="ANALYZE, BUFFERS, FORMAT JSON"))
            transaction.savepoint_rollback(point)
        transaction.set_rollback(True)
    return sorted(runs, key=lambda run: run.milliseconds)[len(runs) // 2]


def asked(call: Callable[[], object], *, options: str = "ANALYZE, BUFFERS, FORMAT JSON") -> list[Run]:
    """Explain every query that a call makes."""
    with CaptureQueriesContext(connection) as queries:
        call()
    looks = [query["sql"] for query in queries if query["sql"].lstrip("-\n ").upper().startswith(("SELECT", "WITH"))]
    assert looks, [query["sql"] for query in queries]
    return [explained(sql, options=options) for sql in looks]
