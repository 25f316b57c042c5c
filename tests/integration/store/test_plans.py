"""PostgreSQL finds what the hot statements look for through the indexes that their headers name.

The plans are the ones that workers get: prepared, and made without knowing the values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoDbBlocker

from django_jobs import clock, store
from django_jobs.store import statements
from django_jobs.store.keys import key_holder
from django_jobs.store.prepared import numbered
from tests.databases import Server
from tests.factories import JOB_TYPE, JobFactory
from tests.scenes import known

pytestmark = pytest.mark.postgres

ROWS = 20_000
FILL = """
INSERT INTO django_jobs_job (id, job_type, queue_name, lane, priority, tenant, payload_version, payload_fingerprint,
    state, revision, generation, generation_started_at, unknown_count, transient_count, lost_count, exit_lost_count,
    silent_lost_count, free_count, unchanged_count, isolation, fence, available_at, error_class, error_type,
    error_fingerprint, dead_reason, dead_at, finished_at, code_version, owner, correlation_id, subject, traceparent,
    created_at)
SELECT gen_random_uuid(), 'tests.work', 'q' || n %% 5, '', n %% 7, '', 1, '', s.state, 1, 1, now(), 0, 0, 0, 0, 0, 0, 0,
    '', 0, now() + CASE s.state WHEN 'scheduled' THEN interval '1 hour' ELSE interval '-1 hour' END, '', '', '',
    CASE s.state WHEN 'dead_lettered' THEN 'age' ELSE '' END, CASE s.state WHEN 'dead_lettered' THEN now() END,
    CASE s.state WHEN 'succeeded' THEN now() END, '', '', '', '', '', now()
FROM generate_series(1, %s) n, LATERAL (SELECT CASE
    WHEN n %% 20 = 0 THEN 'dead_lettered' WHEN n %% 20 = 1 THEN 'scheduled' WHEN n %% 20 = 2 THEN 'failed'
    WHEN n %% 20 < 7 THEN 'queued' ELSE 'succeeded' END AS state) s
"""


@pytest.fixture(scope="module")
def filled(server: Server, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A table with 20,000 jobs, most of them done, and statistics up to date; made once, it costs seconds."""
    with django_db_blocker.unblock():
        with connection.cursor() as cursor:
            cursor.execute(FILL, [ROWS])
            cursor.execute(
                "INSERT INTO django_jobs_idempotencykey (job_id, scope, key, payload_version, payload_fingerprint,"
                " ttl_seconds, created_at) SELECT id, '/tests.work', id::text, 1, '', 60, now() FROM django_jobs_job"
            )
            JobFactory.create_batch(3, suspect=True)
            JobFactory.create_batch(3, running=True)
            cursor.execute("ANALYZE django_jobs_job, django_jobs_idempotencykey")
        yield
        server.empty()


@pytest.fixture(autouse=True)
def planned_as_for_workers(filled: None, database: Server) -> Iterator[None]:
    """Make plans without knowing the values, and forget them after the test."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        yield
        cursor.execute("DEALLOCATE ALL")


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


def _explain(sql: str, params: Any = None) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", params)
        return list(_nodes(cursor.fetchone()[0][0]["Plan"]))


def _prepared(name: str, params: dict[str, Any]) -> list[dict[str, Any]]:
    """Explain a statement of the store the way a worker's connection plans it."""
    text, names = numbered(statements.load("postgresql", name)[0])
    with connection.cursor() as cursor:
        cursor.execute(f"PREPARE this AS {text.decode()}")
    values = {"now": None, **params}
    return _explain(f"EXECUTE this({', '.join(['%s'] * len(names))})", [values[name] for name in names])


def _asked(call: Callable[[], object]) -> list[dict[str, Any]]:
    """Explain every query that a call makes."""
    with CaptureQueriesContext(connection) as queries:
        call()
    assert len(queries) > 0
    return [node for query in queries for node in _explain(query["sql"])]


def _indexes(nodes: list[dict[str, Any]]) -> set[str]:
    scans = [node["Node Type"] for node in nodes if node.get("Relation Name") == "django_jobs_job"]
    assert "Seq Scan" not in scans, nodes
    return {node["Index Name"].removeprefix("django_jobs_") for node in nodes if "Index Name" in node}


def test_claim_walks_the_ready_index_in_order() -> None:
    """Per queue it reads as many entries as it takes, without sorting what is there."""
    params = {
        "queues": [f"q{number}" for number in range(5)],
        "job_types": [JOB_TYPE],
        "versions": [1],
        "leases": [70.0],
        "code_versions": ["test"],
        "attempt_ids": ["00000000-0000-4000-8000-000000000001"],
        "limit": 1,
        "suspects": 0,
        "oldest": False,
        "lanes": [""] * 5,
        "limits": [None] * 5,
        "rooms": [None] * 5,
        "after_queues": [],
        "after_lanes": [],
        "after_priorities": [],
        "after_times": [],
        "after_ids": [],
        "worker_id": "00000000-0000-4000-8000-000000000002",
        "worker_child": 1,
        "worker_name": "worker",
        "alone": "",
    }
    nodes = _prepared("claim", params)

    assert {"job_ready", "job_watched"} <= _indexes(nodes)
    ready = [node for node in nodes if node.get("Index Name") == "django_jobs_job_ready"]
    assert "queue_name" in ready[0]["Index Cond"]
    assert "available_at" in ready[0]["Index Cond"]


def test_promotion_reads_the_due_index() -> None:
    """It reads what is due and nothing else."""
    nodes = _prepared("promote", {"queues": ["q1", "q2"], "lanes": ["", ""], "runnable": None, "limit": 500})
    assert "job_due" in _indexes(nodes)
    assert _indexes(_asked(lambda: store.promote(["nowhere"], using="default"))) == {"job_due"}


def test_next_due_time_is_read_from_the_due_index() -> None:
    """It bounds an idle worker's sleep, so it must cost nothing."""
    assert _indexes(_asked(lambda: store.next_due(["q1", "q2"], using="default"))) == {"job_due"}


@pytest.mark.parametrize("everywhere", [False, True])
def test_idle_look_reads_the_first_entries_of_each_index(everywhere: bool) -> None:
    """It is what an idle worker costs, so it sorts nothing and scans no table."""
    nodes = _prepared("queries/look", {"queues": ["q1", "q2"], "everywhere": everywhere})

    assert _indexes(nodes) == {"job_ready", "job_watched", "job_due"}
    assert not [node for node in nodes if "Sort" in node["Node Type"]]


def test_suspects_have_an_index_of_their_own() -> None:
    """Few rows are in it, however many are queued."""
    assert _indexes(_asked(lambda: store.oldest_suspect(["q1"], [known()], using="default"))) == {"job_watched"}


def test_queues_are_found_by_probes() -> None:
    """One probe per queue, in the indexes that hold what waits."""
    with CaptureQueriesContext(connection) as queries:
        found = store.known_queues(using="default")
    nodes = [node for query in queries for node in _explain(query["sql"])]

    assert found == ["default", "q0", "q1", "q2", "q3", "q4"]
    assert _indexes(nodes) <= {"job_ready", "job_due", "job_watched"}
    assert len(queries) <= 2 * (len(found) + 1) + 1


def test_expiry_looks_at_waiting_jobs_only() -> None:
    """The indexes of waiting jobs can serve it; here, where a fifth of all jobs waits, the planner must be asked to."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")

    small = {"job_ready", "job_due", "job_watched", "job_pkey", "pause_once", "worker_pkey"}
    assert _indexes(_asked(lambda: store.expire(using="default"))) <= small
    given = {"limit": 500, "judge": None, "grace": timedelta(hours=1), "queues": ["q1"], "lanes": ["!gone 1"]}
    assert _indexes(_prepared("expire", given)) <= small


def test_lost_jobs_are_found_among_the_running() -> None:
    """The reaper reads running jobs by their own index."""
    nodes = _asked(lambda: store.abandoned(using="default"))

    assert "job_held" in _indexes([node for node in nodes if node.get("Relation Name") != "django_jobs_attempt"])


def test_key_is_found_by_its_own_index() -> None:
    """Who holds a key is two index probes."""
    assert _indexes(_asked(lambda: key_holder("/tests.work", "x", using="default"))) == {"key_once", "job_pkey"}


@pytest.mark.parametrize("name", ["succeed", "fail", "dead_letter", "snooze", "release", "renew", "rescue"])
def test_ending_finds_its_rows_by_id(name: str) -> None:
    """Nothing is searched: job, attempt and payload are known by their ids, through an index that begins or ends there."""
    counts = ["unknown", "transient", "free", "lost", "exit_lost", "silent_lost", "unchanged"]
    params: dict[str, Any] = {
        **{f"{count}_count": 0 for count in counts},
        **dict.fromkeys(
            ["isolation", "error_class", "error_type", "error_fingerprint", "message", "traceback", "result"], ""
        ),
        **dict.fromkeys(["delay", "budget", "lease", "silent_after", "expired_patience"], timedelta(seconds=1)),
        "job_id": "00000000-0000-4000-8000-000000000001",
        "attempt_id": "00000000-0000-4000-8000-000000000002",
        "dead_reason": "age",
        "for_evidence": False,
        "notify": True,
        "cause": "silent",
        "exit_status": None,
        "progress": 1,
        "progress_total": None,
        "ends_at": clock.now(),
    }

    nodes = _prepared(name, params)
    assert {"job_pkey", "job_held"} & _indexes(nodes)
    looks = [node for node in nodes if node.get("Relation Name") == "django_jobs_job" and "Index Name" in node]
    assert [look for look in looks if not re.search(r"\bid = ", look["Index Cond"])] == []
