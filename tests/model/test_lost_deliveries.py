"""An event that ends its process, its neighbour and a job beside it: every order of events, and every wrong rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.lost_deliveries import Rules, Search

RIGHT = Rules()
MUTANTS = {
    "a lost attempt never counts": (replace(RIGHT, losses_count=False), "again and again"),
    "losses in company convict": (
        replace(RIGHT, suspects_go_alone=False, company_acquits=False),
        "the neighbour is convicted",
    ),
    "suspects go in company, which acquits": (replace(RIGHT, suspects_go_alone=False), "again and again"),
    "jobs run beside a suspected delivery": (replace(RIGHT, delivery_waits_for_jobs=False), "the job is convicted"),
    "a suspected job runs beside deliveries": (
        replace(RIGHT, job_waits_for_deliveries=False, kills=2, kills_come_first=True),
        "the job is convicted",
    ),
    "suspicion outlives an answer": (replace(RIGHT, answers_clear=False), "held against"),
}


@pytest.mark.parametrize("rules", [RIGHT, replace(RIGHT, kills=2, kills_come_first=True)])
def test_killer_is_convicted_and_nobody_else(rules: Rules) -> None:
    """In every order the killer ends dead after few attempts, its neighbour arrives and the job succeeds."""
    found = Search(rules).run()

    assert (found.problem, found.trace) == ("", ())
    assert found.worlds > 100


def test_known_bound_is_as_with_jobs() -> None:
    """Who was lost beside a killer and is then alone during two kills from outside is convicted without guilt."""
    found = Search(replace(RIGHT, kills=2)).run()

    assert found.problem == "the neighbour is convicted"
    assert found.trace.count("somebody kills the process") == 2


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_rules_are_caught(mutant: str) -> None:
    """Each wrong rule breaks a promise, and the search says by which events."""
    rules, problem = MUTANTS[mutant]

    found = Search(rules).run()

    print(f"\n{mutant}: {found.problem} after {'; '.join(found.trace)}")
    assert problem in found.problem
