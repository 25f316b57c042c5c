"""R73: looking how things stand costs the same with a million finished jobs, and reads none of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import pytest
from django.db import connection
from pytest_django import DjangoDbBlocker

from django_jobs.observe.gauges import DatabaseGauges
from django_jobs.store.overview import overview
from tests.databases import Server
from tests.plans import backlog
from tests.plans.backlog import add, settled
from tests.plans.explaining import ran

pytestmark = [pytest.mark.postgres, pytest.mark.long, pytest.mark.timeout(900)]

STATEMENTS = (
    "backlog", "oldest_due", "open_effects", "deliveries", "present_workers", "dead_heads", "open_batches",
)  # fmt: skip
TURNS, BATCHES = 100_000, 20_000


@pytest.fixture(scope="module")
def finished(server: Server, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A million finished jobs, 1,000 queued ones in three queues, 100,000 serial keys and 20,000 open batches."""
    with django_db_blocker.unblock():
        server.empty()
        add(1_000_000, **backlog.DONE)
        add(1000, queue_name="'q' || n % 3", priority="n % 3 - 1")
        add(50, **backlog.RUNNING)
        add(100, **backlog.DEAD)
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO django_jobs_sideeffect (id, job_id, tenant, provider, business_key, name, state, revision,"
                " required, on_ambiguous, owner, epoch, request, request_digest, dedupe, key_alphabet, key_max_length,"
                " caches_failures, can_reconcile, settle_seconds, visible_after_seconds, retry_policy, provider_ref,"
                " provider_request_id, result, needs_review, review_reason, resolved_by, resolved_at, created_at)"
                " SELECT gen_random_uuid(), id, '', 'p', id::text, 'charge', 'succeeded', 1, true, 'review', '', 1, '{}',"
                " '', 'key', 'ascii', 255, false, true, 0, 0, '{}', '', '', '{}', false, '', 'send', now(), now()"
                " FROM django_jobs_job WHERE state = 'succeeded' LIMIT 200000"
            )
            add(1_000, queue_name="'serial'", lane="'~~'", serial_key="'k' || n")
            add(500, **backlog.DEAD, serial_key="'k' || n")
            cursor.execute(
                "INSERT INTO django_jobs_serialturn (id, key, job_id) SELECT gen_random_uuid(), 'k' || n, j.id"
                f" FROM generate_series(1, {TURNS}) n LEFT JOIN django_jobs_job j"
                " ON j.serial_key = 'k' || n AND j.state = 'dead_lettered'"
            )
            cursor.execute(
                "INSERT INTO django_jobs_batch (id, key, on_dead, owner, callback_type, callback, created_at)"
                " SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, '', 'block', '', '', '', now()"
                f" FROM generate_series(1, {BATCHES}) n"
            )
            cursor.execute(
                "ANALYZE django_jobs_sideeffect, django_jobs_delivery, django_jobs_serialturn, django_jobs_batch"
            )
        settled()
        yield
        server.empty()


@pytest.mark.usefixtures("finished")
@pytest.mark.django_db
class TestFinished:
    """One look among a million finished rows."""

    def test_r73_a_look_takes_less_than_50_ms_and_scans_no_table(self, server: Server) -> None:
        """Every statement goes through indexes, and the whole is fast enough to repeat all day."""
        touched = 0
        for name in STATEMENTS:
            params = {} if name in {"oldest_due", "present_workers"} else {"limit": 10_000}
            run = ran(f"queries/{name}", params, times=5)
            print(f"\n{name}: {run.buffers} pages, {run.milliseconds:.2f} ms, {run.removed} rows read for nothing")
            touched += run.buffers
            assert run.whole_tables == set()
            assert "django_jobs_sideeffect" not in {
                node.get("Relation Name") for node in run.nodes if node["Node Type"] == "Seq Scan"
            }
        assert touched < 8000
        gauges = []
        for _ in range(9):
            began = time.perf_counter()
            list(DatabaseGauges("default").collect())
            gauges.append((time.perf_counter() - began) * 1000)
        print(f"collect: median {statistics.median(gauges):.1f} ms, worst {max(gauges):.1f} ms")
        assert min(gauges) <= 50

    def test_r73_counts_are_right(self, server: Server) -> None:
        """They are those of the unfinished rows."""
        found = overview(using="default")
        many = dict.fromkeys(("queued", "behind", "running", "dead_lettered"), 0)
        for group in found.groups:
            many[group.stands] += group.many

        assert many == {"queued": 1000, "behind": 1000, "running": 50, "dead_lettered": 600}
        assert {oldest.queue_name for oldest in found.oldest} == {"q0", "q1", "q2", "serial"}
        assert (sum(held.many for held in found.held), found.batches.many) == (500, 10_000)
