"""The alert rules name metrics and labels that exist, and values that a label can have."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from django_jobs.observe.catalogue import SPECS, Kind, Spec

TEXT = resources.files("django_jobs").joinpath("contrib", "prometheus", "alerts.yml").read_text(encoding="utf-8")
RULES = dict(zip(re.findall(r"- alert: (\w+)", TEXT), re.findall(r"expr: (.+)", TEXT), strict=True))
EXPOSED: dict[str, Spec] = {}
for _spec in SPECS:
    for _end in ("_bucket", "_sum", "_count") if _spec.kind is Kind.HISTOGRAM else ("",):
        EXPOSED[_spec.full_name + _end] = _spec


@pytest.mark.parametrize("alert", RULES)
def test_rule_names_what_exists(alert: str) -> None:
    """Each metric is exposed under that name, and has the labels that are matched or grouped by."""
    rule = RULES[alert]
    names = re.findall(r"django_jobs_\w+", rule)

    assert names
    assert [name for name in names if name not in EXPOSED] == []
    for name, matchers in re.findall(r"(django_jobs_\w+)\{([^}]*)\}", rule):
        for label, values in re.findall(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"', matchers):
            assert label in EXPOSED[name].labels
            assert [
                value for value in values.split("|") if value not in re.split(r",? (?:and )?", EXPOSED[name].values)
            ] == []
    for labels, name in re.findall(r"by \(([^)]*)\) \((?:rate|increase)?\(?(django_jobs_\w+)", rule):
        assert set(re.split(r", ?", labels)) <= set(EXPOSED[name].labels)


def test_every_rule_can_be_acted_on() -> None:
    """Each has a severity, a summary and a runbook."""
    assert len(RULES) >= 10
    for part in ("severity: ", "summary: ", "runbook_url: "):
        assert TEXT.count(part) == len(RULES)


def test_rules_are_brackets_in_balance() -> None:
    """A slip of the keyboard is found here and not by the first outage."""
    for rule in RULES.values():
        for opening, closing in ("()", "[]", "{}"):
            assert rule.count(opening) == rule.count(closing)
