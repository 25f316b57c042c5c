"""The rules about losses and suspects hold in every order of events, and every wrong rule is caught with a trace.

Held: a job that kills its process or its whole group causes at most three deaths; no good and no overdue job is ever
called poison; suspicion ends with a heard end; and every job comes to its end when faults stop.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from django_jobs.domain import poison
from django_jobs.domain.retry import Counters, count_free
from django_jobs.domain.states import Alone, LossCause
from tests.model.suspects import Faults, Rules, Search

HELD = [
    ("pgs", Faults()),
    ("ppg", Faults()),
    ("fg", Faults(stops=1, away=1)),
    ("gs", Faults(kills=2)),
    ("gs", Faults(stops=1, away=3)),
    ("gg", Faults(stops=3, away=3)),
    ("pg", Faults(freezes=1)),
]
HELD_LONG = [
    ("gs", Faults(kills=2, away=1)),
    ("oog", Faults()),
    ("pog", Faults()),
    ("pfg", Faults()),
    ("ogs", Faults()),
    ("gg", Faults(kills=2, expiries=2)),
    ("gg", Faults(kills=1, freezes=1)),
    ("pg", Faults(kills=1, expiries=1)),
    ("pg", Faults(stops=2, away=1)),
    ("ps", Faults(stops=1, away=2)),
    ("fs", Faults(stops=2, away=1)),
    ("og", Faults(stops=3, away=3)),
]


def name(case: object) -> str:
    """Name a case by its jobs, and by the faults that it has."""
    if isinstance(case, Faults):
        return "-".join(f"{value}{key}" for key, value in case._asdict().items() if value) or "none"
    return str(case)


@pytest.mark.parametrize(("kinds", "faults"), HELD, ids=name)
def test_rules_hold_in_every_order(kinds: str, faults: Faults) -> None:
    """Small worlds, searched to their end."""
    found = Search(kinds, faults=faults).run()

    assert (found.problem, found.trace) == ("", [])
    assert found.worlds > 100


@pytest.mark.long
@pytest.mark.parametrize(("kinds", "faults"), HELD_LONG, ids=name)
def test_rules_hold_in_larger_worlds(kinds: str, faults: Faults) -> None:
    """Larger worlds: group killers, more neighbours, faults of several kinds."""
    found = Search(kinds, faults=faults).run()

    print(f"\n{kinds} {name(faults)}: {found.worlds} worlds")
    assert (found.problem, found.trace) == ("", [])


def _expired_is_a_loss(counters: Counters, cause: LossCause) -> Counters:
    return poison.count_loss(counters, LossCause.EXIT if cause is LossCause.EXPIRED else cause)


def _ended_is_a_loss(counters: Counters, cause: LossCause) -> Counters:
    return poison.count_loss(counters, LossCause.EXIT if cause is LossCause.ENDED else cause)


def _silence_is_free(counters: Counters, cause: LossCause) -> Counters:
    return count_free(counters) if cause is LossCause.SILENT else poison.count_loss(counters, cause)


def _never_alone_on_worker(*, exit_lost: int, silent_lost: int) -> Alone:
    return Alone.CHILD if exit_lost or silent_lost >= 2 else Alone.NO


def _alone_in_child_is_enough(cause: LossCause, alone: Alone, *, stopping: bool) -> bool:
    return cause in {LossCause.EXIT, LossCause.SILENT} and alone is not Alone.NO


RIGHT = Rules()
MUTANTS = {
    "an end on purpose is a death": ("gs", Faults(stops=2, away=3), replace(RIGHT, on_purpose=lambda **_: False)),
    "the exit code is believed": ("fg", Faults(), replace(RIGHT, on_purpose=lambda **k: k["code"] in {3, 64})),
    "whoever dies during a stop was ended": (
        "pg",
        Faults(stops=1),
        replace(RIGHT, on_purpose=lambda **k: k["announced"] or k["stopping"]),
    ),
    "an end on purpose makes a suspect": ("gs", Faults(kills=2, away=1), replace(RIGHT, count=_ended_is_a_loss)),
    "silence while stopping convicts": ("gg", Faults(stops=3, away=3), replace(RIGHT, stopping_is_noted=False)),
    "suspects run beside others": ("pg", Faults(), replace(RIGHT, lonely_in_company=True)),
    "a release clears": ("ogs", Faults(), replace(RIGHT, release_clears=True)),
    "nothing clears": ("pg", Faults(), replace(RIGHT, failure_clears=False)),
    "an expired lease makes a suspect": ("gg", Faults(kills=1, expiries=2), replace(RIGHT, count=_expired_is_a_loss)),
    "revoked threads are no company": ("pg", Faults(freezes=1), replace(RIGHT, ghosts_are_company=False)),
    "one worker alone reaps": ("gg", Faults(freezes=1), replace(RIGHT, only_first_host_reaps=True)),
    "silence is no loss": ("o", Faults(), replace(RIGHT, count=_silence_is_free)),
    "a group killer is never alone on its worker": ("o", Faults(), replace(RIGHT, isolation=_never_alone_on_worker)),
    "silence convicts a job alone in its child": (
        "oog",
        Faults(),
        replace(RIGHT, isolation=_never_alone_on_worker, convicts=_alone_in_child_is_enough),
    ),
    "alone on the worker is only said": ("oog", Faults(), replace(RIGHT, alone_on_worker_means_child=True)),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_rules_are_caught(mutant: str) -> None:
    """Each wrong rule breaks a promise, and the search says by which events."""
    kinds, faults, rules = MUTANTS[mutant]

    found = Search(kinds, rules, faults).run()

    print(f"\n{mutant}: {found.problem} after {'; '.join(found.trace)}")
    assert found.problem
    assert found.trace


@pytest.mark.parametrize(
    ("kinds", "faults"),
    [
        ("og", Faults(kills=1)),
        ("gg", Faults(kills=3)),
        ("gg", Faults(kills=1, stops=2, away=2)),
    ],
    ids=name,
)
def test_known_bounds_are_where_the_documentation_says(kinds: str, faults: Faults) -> None:
    """Three losses that nobody can explain convict: group kills, outside kills, stops that could not even sign off."""
    assert Search(kinds, faults=faults).run().problem == "an innocent job was convicted"
