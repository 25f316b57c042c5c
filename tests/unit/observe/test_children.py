"""What several processes counted becomes one: sums of counters and histograms, gauges of the living alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from prometheus_client.core import CounterMetricFamily

from django_jobs.observe.children import Children
from django_jobs.observe.families import merged

COUNT = """
import os
from prometheus_client import Counter, Gauge, Histogram
Counter("things", "Things.", ["kind"]).labels("a").inc(3)
Gauge("busy", "Busy.", multiprocess_mode="livesum").inc(2)
Histogram("times_seconds", "Times.", buckets=(1, 5)).observe(2)
print(os.getpid())
"""


@pytest.fixture
def children() -> Iterator[Children]:
    """A directory that is gone after the test."""
    made = Children()
    yield made
    made.remove()


def count(children: Children) -> int:
    """Run a process that counts, and return its id."""
    environment = {**os.environ, **children.environment()}
    done = subprocess.run([sys.executable, "-c", COUNT], env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


def values(children: Children) -> dict[str, float]:
    """Return each series by name and bucket."""
    return {
        sample.name + sample.labels.get("le", ""): sample.value
        for family in children.collect()
        for sample in family.samples
    }


def test_counts_of_the_dead_stay_and_their_files_go(children: Children) -> None:
    """Three processes, one of them alive: the sum is of all, the gauge of one, and the files too."""
    dead = [count(children), count(children)]
    count(children)
    before = values(children)
    for pid in dead:
        children.ended(pid)
    after = values(children)

    assert before["busy"] == 6
    assert after["busy"] == 2
    assert {name: value for name, value in after.items() if name != "busy"} == {
        "things_total": 9,
        "times_seconds_bucket1.0": 0,
        "times_seconds_bucket5.0": 3,
        "times_seconds_bucket+Inf": 3,
        "times_seconds_count": 3,
        "times_seconds_sum": 6,
    }
    assert len(list(children.folder.glob("*.db"))) == 3


def test_end_that_is_told_twice_counts_once(children: Children) -> None:
    """The second time there is nothing left to add."""
    pid = count(children)
    children.ended(pid)
    children.ended(pid)

    assert values(children)["things_total"] == 3


def test_equal_series_are_added_and_others_kept() -> None:
    """Series of one name with other labels stay apart."""
    one, other = (CounterMetricFamily("things", "Things.", labels=["kind"]) for _ in range(2))
    one.add_metric(["a"], 1, created=5.0)
    other.add_metric(["a"], 2, created=6.0)
    other.add_metric(["b"], 4)

    (family,) = merged([one, other])

    assert [(sample.labels["kind"], sample.value) for sample in family.samples] == [("a", 3), ("b", 4)]
