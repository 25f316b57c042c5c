"""With a million rows in the table, the hot statements read through the indexes that their headers name, and little.

Time is printed, not asserted: what must not grow with a backlog is the number of pages that a statement touches.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoDbBlocker

from django_jobs import job, store
from django_jobs.define.registry import unregister
from django_jobs.models import Job
from django_jobs.store.claims import before_all, place_params
from django_jobs.store.waiting import set_aside, take_up
from django_jobs.worker.claiming import Claimer
from django_jobs.worker.config import WorkerConfig
from tests.databases import Server
from tests.factories import JOB_TYPE
from tests.plans import backlog
from tests.plans.backlog import add, claim_params, settled
from tests.plans.explaining import Run, asked, ran
from tests.scenes import known, new_job

pytestmark = [pytest.mark.postgres, pytest.mark.long, pytest.mark.timeout(900)]

MILLION = 1_000_000
PLANS = Path(__file__).with_name("plans.json")
KIND = f"{JOB_TYPE} 1"
PAUSED_TYPE = "tests.paused"
PAUSED_KIND = f"{PAUSED_TYPE} 1"
ONE_OF_EACH = {"queues": ["default", "limited"], "limits": [None, 2]}


@pytest.fixture
def emptied(server: Server, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Commit what the test loads, and leave nothing."""
    with django_db_blocker.unblock():
        server.empty(anew=True)
        yield
        server.empty(anew=True)


@pytest.fixture(scope="module")
def million(server: Server, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A million jobs: most are done, 100,000 are queued, 100,000 due later, 20,000 due, 50,000 dead; 200 run."""
    with django_db_blocker.unblock():
        server.empty(anew=True)
        add(MILLION - 270_200, **backlog.DONE)
        add(100_000, priority="n % 7 - 3", queue_name="'q' || n % 5")
        add(
            100_000,
            **backlog.FUTURE,
            priority="n % 3 - 1",
            queue_name="'q' || n % 5",
            useful_until="now() + interval '2 hours'",
        )
        add(20_000, **backlog.DUE, priority="n % 3 - 1", queue_name="'q' || n % 5")
        add(50_000, **backlog.DEAD)
        add(200, **backlog.RUNNING)
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO django_jobs_idempotencykey (job_id, scope, key, payload_version, payload_fingerprint,"
                " ttl_seconds, created_at) SELECT id, '/tests.work', id::text, 1, '', 60, now() FROM django_jobs_job"
            )
        settled()
        yield
        server.empty(anew=True)


def _shown(label: str, run: Run) -> Run:
    print(f"\n{label}: {run.buffers} pages, {run.milliseconds:.2f} ms, {run.removed} rows read for nothing")
    return run


def _reads_through(run: Run, *indexes: str, for_nothing: int = 100) -> None:
    assert set(indexes) <= run.indexes, run.indexes
    assert run.whole_tables == set()
    assert run.removed <= for_nothing


@pytest.mark.usefixtures("million")
@pytest.mark.django_db
class TestMillion:
    """Each hot statement among a million rows."""

    queues = [f"q{number}" for number in range(5)]

    def test_claim(self, server: Server) -> None:
        """A claim over five queues reads a few entries per queue and sorts nothing that waits."""
        run = _shown("claim 1 of 5 queues", ran("claim", claim_params(1, queues=self.queues), times=9))
        _reads_through(run, "job_ready", "job_pkey")
        assert run.rows == 1
        assert run.buffers < 150
        assert [node for node in run.nodes if node["Node Type"] == "Sort" and node["Actual Rows"] > 10] == []

    def test_promotion(self, server: Server) -> None:
        """It reads what it moves: 500 due jobs per queue, of the highest band."""
        params = {"queues": self.queues, "lanes": [""] * 5, "runnable": [KIND], "limit": 500}
        run = _shown("promote 5 × 500", ran("promote", params))
        _reads_through(run, "job_due")
        assert run.rows == 2500
        due = [node for node in run.nodes if node.get("Index Name") == "django_jobs_job_due"]
        assert sum(node["Actual Rows"] * node["Actual Loops"] for node in due) <= 2500 + 15

    def test_next_due(self, server: Server) -> None:
        """It bounds an idle worker's sleep: one probe per queue and band."""
        run = _shown("next due", ran("queries/next_due", {"queues": self.queues}, times=3))
        _reads_through(run, "job_due")
        assert run.buffers <= 15 * 6

    def test_known_queues(self, server: Server) -> None:
        """One probe per queue."""
        runs = asked(lambda: store.known_queues(using="default"))
        assert store.known_queues(using="default") == self.queues
        for run in runs:
            _reads_through(run)
            assert run.indexes <= {"job_ready", "job_due", "job_watched"}
        assert _shown("known queues", runs[0]).buffers + sum(run.buffers for run in runs) <= 200

    def test_reaping(self, server: Server) -> None:
        """The reaper reads running jobs only, however many are done or dead."""
        runs = [run for run in asked(lambda: store.abandoned(using="default")) if "job_held" in run.indexes]
        assert len(runs) == 2
        for run in runs:
            _shown("abandoned", run)
            _reads_through(run, "job_held", for_nothing=200)
            assert run.buffers < 1000

    def test_key_decision(self, server: Server) -> None:
        """An enqueue with a key probes the key's index, and so does the look at who holds it."""
        given = asdict(new_job(key="order:1", key_scope="/tests.work")) | {"notify": True}
        run = _shown("enqueue with key", ran("enqueue", given, times=5))
        assert run.rows == 1
        assert run.whole_tables == set()
        assert run.buffers < 150
        held = _shown("key holder", ran("queries/key_holders", {"scope": "/tests.work", "keys": ["x"]}))
        _reads_through(held, "key_once", "job_pkey")

    def test_expiry(self, server: Server) -> None:
        """100,000 waiting jobs that are useful for some time yet cost as much as none."""
        params = {"limit": 500, "judge": uuid.uuid4(), "grace": timedelta(hours=1), "queues": [], "lanes": []}
        run = _shown("expire, nothing late", ran("expire", params, times=3))
        _reads_through(run, "job_watched")
        assert run.buffers <= 20

    def test_suspects_have_their_own_few_entries(self, server: Server) -> None:
        """Looking for a suspect does not read the jobs whose usefulness ends, which share the index."""
        (look,) = asked(lambda: store.oldest_suspect(self.queues, [known()], using="default"))
        _reads_through(look, "job_watched")
        assert look.buffers <= 10

    def test_plans_are_those_that_were_looked_at(self, server: Server) -> None:
        """Which indexes each hot statement reads, and how, stands in a file: a change of a plan is a change to look at."""
        one = {"queues": self.queues}
        lanes = {**one, "lanes": [""] * 5}
        given = asdict(new_job(key="order:1", key_scope="/tests.work")) | {"notify": True}
        found = {
            name: _shape(ran(name, params))
            for name, params in {
                "claim": claim_params(1, queues=self.queues),
                "promote": {**lanes, "runnable": [KIND], "limit": 500},
                "enqueue": given,
                "queries/next_due": one,
                "queries/look": {**one, "everywhere": False},
                "queries/oldest": lanes,
                "queries/open_lanes": one,
                "queries/resources": {"names": ["api"]},
                "queries/arrived": {**one, "limit": 500},
                "queries/next_in_turn": {"keys": ["account:1"]},
                "queries/key_holders": {"scope": "/tests.work", "keys": ["x"]},
            }.items()
        }
        if os.environ.get("WRITE_PLANS"):
            PLANS.write_text(json.dumps(found, indent=1) + "\n")
        assert found == json.loads(PLANS.read_text()), "look at the new plan, then run this again with WRITE_PLANS=1"


def _shape(run: Run) -> list[str]:
    """Return how tables are read, in the order of the plan, each way once."""
    ways = [
        f"{node['Node Type']} {node.get('Index Name') or node['Relation Name']}"
        for node in run.nodes
        if "Index Name" in node or "Relation Name" in node
    ]
    return list(dict.fromkeys(ways))


@pytest.mark.usefixtures("emptied")
class TestBacklog:
    """What stands behind, ahead or aside costs a claim nothing."""

    def _claim(self, label: str, **changes: Any) -> Run:
        run = _shown(label, ran("claim", claim_params(1, **ONE_OF_EACH, **changes), times=21))
        assert run.rows == 1
        assert run.whole_tables == set()
        assert run.removed < 100
        return run

    def test_claim_costs_the_same_before_any_backlog(self, server: Server) -> None:
        """10,000 jobs behind a full limit, 100,000 future jobs, 100,000 of a paused type: the same pages ± 20 %."""
        add(250_000, **backlog.DONE)  # an index of so many rows has its height
        add(1000)
        add(2, queue_name="'limited'", **backlog.RUNNING)
        settled()
        base = self._claim("no backlog").buffers
        add(10_000, queue_name="'limited'", priority="50")
        settled()
        full = self._claim("10,000 behind a full limit").buffers
        add(100_000, **backlog.FUTURE)
        settled()
        future = self._claim("and 100,000 future jobs").buffers
        add(100_000, job_type=f"'{PAUSED_TYPE}'", priority="50")
        settled()
        while store.defer(["default"], runnable=[KIND], using="default"):
            pass
        with connection.cursor() as cursor:  # what autovacuum does: 100,000 dead entries stand at the head
            cursor.execute("VACUUM ANALYZE django_jobs_job")
        paused = self._claim("and 100,000 of a paused type").buffers

        for found in (full, future, paused):
            assert base * 0.8 <= found <= base * 1.2, (base, full, future, paused)
        assert Job.objects.filter(lane=f"!{PAUSED_KIND}", state="scheduled").count() == 100_000

    def test_claims_cost_the_same_behind_full_resources(self, server: Server, settings: Any) -> None:
        """10,000 jobs behind a full resource, then 100 full resources with 100 jobs each: a child's claim stays as it is."""
        names = [f"api-{number:03}" for number in range(101)]
        settings.DJANGO_JOBS = {
            **getattr(settings, "DJANGO_JOBS", {}),
            "RESOURCES": {name: {"limit": 1} for name in names},
        }
        add(250_000, **backlog.DONE)
        add(1000)
        settled()
        base = self._child_claims("no resource")
        add(1, resource="'api-000'", lane="'api-000'", **backlog.RUNNING)
        add(10_000, resource="'api-000'", lane="'api-000'", priority="50")
        settled()
        one = self._child_claims("10,000 behind a full resource")
        for name in names[1:]:
            add(1, resource=f"'{name}'", lane=f"'{name}'", **backlog.RUNNING)
            add(100, resource=f"'{name}'", lane=f"'{name}'", priority="50")
        settled()
        hundred = self._child_claims("and 100 full resources")

        for found in (one, hundred):
            assert base * 0.8 <= found <= base * 1.2, (base, one, hundred)

    def _child_claims(self, label: str) -> int:
        """Return the pages of a claim, after seeing that a child asks nothing else between its looks once a second."""
        job(type=JOB_TYPE, atomic=False)(lambda: None)
        try:
            child = Claimer(
                WorkerConfig(
                    worker_id=str(uuid.uuid4()),
                    name="plans",
                    database="default",
                    queues=("default",),
                    threads=1,
                    processes=1,
                    grace=5,
                    poll=1,
                )
            )
            child.take(1, 0)  # looks at everything
            with CaptureQueriesContext(connection) as queries:
                assert len(child.take(1, 0)) == 1
        finally:
            unregister(JOB_TYPE)
        (claim,) = [query["sql"] for query in queries]
        assert "unnest('{default}'::text[], '{\"\"}'::text[]" in claim, "it asks for no lane"
        run = _shown(label, ran("claim", claim_params(1), times=21))
        assert run.rows == 1
        assert run.milliseconds <= 5, "a millisecond on an idle machine"
        looks = _shown(f"{label}: resources that wait", ran("queries/open_lanes", {"queues": ["default"]}, times=3))
        assert "job_ready" in looks.indexes
        return run.buffers

    def test_promotion_steps_past_what_is_set_aside(self, server: Server) -> None:
        """100,000 due jobs of a paused type cost promotion nothing, and finding their lane is a few probes."""
        add(100_000, **backlog.DUE, job_type=f"'{PAUSED_TYPE}'", lane=f"'!{PAUSED_KIND}'")
        add(10, **backlog.DUE)
        settled()
        run = _shown(
            "promote", ran("promote", {"queues": ["default"], "lanes": [""], "runnable": [KIND], "limit": 500})
        )
        assert run.rows == 10
        assert run.buffers < 500
        assert "job_due" in run.indexes
        lanes = _shown("lanes", ran("queries/lanes", {"queues": ["default"]}, times=3))
        assert (lanes.rows, lanes.indexes) == (1, {"job_due"})
        assert lanes.buffers <= 20
        assert set_aside(["default"], using="default") == [("default", f"!{PAUSED_KIND}")]
        assert take_up([("default", f"!{PAUSED_KIND}")], runnable=[PAUSED_KIND], using="default", limit=500) == 500

    def test_claim_looks_at_a_bounded_number_of_strange_rows(self, server: Server) -> None:
        """100,000 jobs of another worker's type in front: at most 200 are looked at, and a place leads behind them."""
        add(100_000, job_type="'tests.other'", priority="50")
        add(10)
        settled()
        blind = _shown("strange rows in front", ran("claim", claim_params(1), times=5))
        assert blind.rows == 0
        assert max(node.get("Actual Rows", 0) for node in blind.nodes) <= 200
        behind = place_params([before_all("default", 0)])
        found = _shown("from a place behind them", ran("claim", claim_params(1, **behind), times=5))
        assert found.rows == 1
        assert "job_ready" in found.indexes

    def test_r76_claim_steps_over_nothing(self, server: Server) -> None:
        """R76: a million future jobs, 100,000 dead and 100,000 queued, with statistics and without: no row for nothing."""
        add(MILLION, **backlog.FUTURE, priority="5")
        add(100_000, **backlog.DEAD)
        add(100_000)
        for label in ("before ANALYZE", "after ANALYZE"):
            run = _shown(f"claim 10 {label}", ran("claim", claim_params(10), times=21))
            assert run.rows == 10
            assert "job_ready" in run.indexes
            assert run.whole_tables == set()
            assert run.removed < 100
            assert run.buffers < 600
            settled()
