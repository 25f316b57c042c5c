"""The table of metrics keeps to the rules of names, units and labels, and is what is exposed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from django_jobs.observe.catalogue import ALLOWED_LABELS, BY_NAME, SPECS, Kind, Source, problems
from django_jobs.observe.metrics import Metrics

FORBIDDEN = {
    "id",
    "job_id",
    "key",
    "worker",
    "worker_id",
    "host",
    "hostname",
    "user",
    "message",
    "error",
    "pid",
    "subject",
}


def test_no_metric_breaks_a_rule() -> None:
    """Names, units, labels and help texts pass the lint."""
    assert [problem for spec in SPECS for problem in problems(spec)] == []
    assert len(BY_NAME) == len(SPECS)
    assert not ALLOWED_LABELS & FORBIDDEN


@pytest.mark.parametrize(
    "change",
    [
        {"name": "attempts_total"},
        {"name": "Attempts"},
        {"name": "delay_milliseconds"},
        {"name": "delay", "kind": Kind.HISTOGRAM},
        {"help": "no sentence"},
        {"labels": ("job_id",)},
        {"labels": ("job_type",)},
        {"name": "attempts_counter"},
    ],
)
def test_lint_finds_what_it_looks_for(change: dict[str, object]) -> None:
    """Each rule refuses a metric that breaks it."""
    assert problems(replace(BY_NAME["attempts"], **change)) != []


def test_exposition_is_what_the_table_says() -> None:
    """Each counted metric has the type and the labels of its row."""
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    for spec in SPECS:
        if spec.source is Source.EVENTS:
            found = metrics.series(spec.name, *("x" for _ in spec.labels))
            found.observe(1) if spec.kind is Kind.HISTOGRAM else found.inc()
    families = {family.name: family for family in text_string_to_metric_families(generate_latest(registry).decode())}

    for spec in SPECS:
        if spec.source is Source.EVENTS:
            family = families[spec.base]
            assert (family.type, family.documentation) == (spec.kind, spec.help)
            assert set(family.samples[0].labels) - {"le"} == set(spec.labels)
