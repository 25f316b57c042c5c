"""Who may judge whom after a pause of the database: every phase of two workers' beats, second by second.

The rule under test is the product's own ``may_judge``. Held: nobody takes work back from a worker that was cut off only
because the database was, however often it comes and goes; and a dead worker is found within 25 seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from django_jobs.domain import lease

BEAT = int(lease.HEARTBEAT.total_seconds())
SILENT = int(lease.SILENT_AFTER.total_seconds())
PATIENCE = int(lease.EXPIRED_PATIENCE.total_seconds())
END = 140  # seconds; by then every timer has run several times

MayJudge = Callable[[Sequence[float], float], bool]


@dataclass(frozen=True)
class Case:
    """When two workers beat, when the database is away, how long each needs to come back, and what stands still."""

    judge: int
    judged: int
    downs: tuple[tuple[int, int], ...] = ()
    back: tuple[int, int] = (0, 0)
    frozen: tuple[int, int] = (0, 0)
    dead: int = END
    tick: int | None = None  # the judge looks at these seconds modulo five; None: at every second


@dataclass(frozen=True)
class Rule:
    """What a judge asks before it judges; each field can be wrong."""

    may_judge: MayJudge = lease.may_judge
    covers_expired: bool = True
    patience: int = PATIENCE
    fresh: bool = True  # the own beats are read when judging, not remembered from the last beat


def decision(rule: Rule, allowed: bool, *, silent: float, over: int) -> str:
    """Say what is done to an attempt whose worker was silent, and whose lease has been over, for so many seconds."""
    if allowed and silent > SILENT:
        return "silent"
    return "expired" if (allowed or not rule.covers_expired) and over > rule.patience else ""


def verdict(rule: Rule, case: Case) -> tuple[str, int]:
    """Play one case; returns what the judge did to the other worker's attempt, and when."""
    own = [float(t) for t in range(-100 + (case.judge % BEAT), 21, BEAT)]
    last = float(max(range(-100 + (case.judged % BEAT), 21, BEAT)))
    due, other_due = own[-1] + BEAT, last + BEAT
    waits = [False, False]
    lease_over = case.downs[0][0] + 1 if case.downs and case.dead == END else END
    owes = False
    for now in range(21, END):
        away = any(start <= now < end for start, end in case.downs)
        frozen = case.frozen[0] <= now < case.frozen[1]
        owes = owes or now == lease_over
        if not away and not frozen and (case.tick is None or now % BEAT == case.tick):
            allowed = rule.may_judge(own, float(now) if rule.fresh else own[-1] + BEAT)
            if found := decision(rule, allowed, silent=now - last, over=now - lease_over if owes else 0):
                return found, now
        back = max((end for _, end in case.downs if end <= now), default=0)
        if not frozen and now >= due:
            if away:
                waits[0] = True
            elif not waits[0] or now >= back + case.back[0]:
                own, due, waits[0] = [*own, float(now)], now + BEAT, False
        if now < case.dead and now >= other_due:
            if away:
                waits[1] = True
            elif not waits[1] or now >= back + case.back[1]:
                last, other_due, waits[1], owes = float(now), now + BEAT, False, False
    return "", END


def pauses(*, lengths: Sequence[int], backs: Sequence[int], others: Sequence[int]) -> Iterator[Case]:
    """Return all cases in which the database is away once or twice, and in which the judge stands still meanwhile."""
    for judge, judged, length, mine, theirs in itertools.product(range(5), range(5), lengths, backs, others):
        first = (30, 30 + length)
        yield Case(judge, judged, (first,), (mine, theirs))
        yield Case(judge, judged, (first,), (mine, theirs), frozen=(29, 31 + length))
        for gap, second in ((2, 12), (5, 12), (7, 20), (9, 16), (12, 30)):
            begin = first[1] + gap
            yield Case(judge, judged, (first, (begin, begin + second)), (mine, theirs))


FEW = {"lengths": (1, 7, 12, 21, 40), "backs": (0, 4), "others": (0, 6, 9)}
ALL = {"lengths": (*range(1, 14), 15, 17, 19, 21, 25, 40), "backs": (0, 2, 4), "others": (0, 2, 4, 6, 8, 9)}


def wrong(rule: Rule, cases: Iterator[Case]) -> tuple[int, Case | None, tuple[str, int]]:
    """Return the first case in which a living worker loses its attempt."""
    number = 0
    for number, case in enumerate(cases, 1):
        found = verdict(rule, case)
        if found[0]:
            return number, case, found
    return number, None, ("", 0)


def test_a_pause_of_the_database_revokes_nothing() -> None:
    """Any phase, one pause or two, a judge that stands still: no living worker is judged."""
    number, case, found = wrong(Rule(), pauses(**FEW))

    assert case is None, (case, found)
    assert number > 5000


@pytest.mark.long
def test_a_pause_of_any_length_revokes_nothing() -> None:
    """The same with every length up to 14 seconds, and some longer ones."""
    number, case, found = wrong(Rule(), pauses(**ALL))

    print(f"\n{number} cases")
    assert case is None, (case, found)


def test_a_dead_worker_is_found_in_time() -> None:
    """Without a pause within 25 s; after one within 20 s of its end, plus the judge's own way back."""
    plain = [
        verdict(Rule(), Case(judge, judged, dead=dead, tick=tick))[1] - dead
        for judge, judged, dead, tick in itertools.product(range(5), range(5), range(40, 46), range(5))
    ]
    paused = [
        verdict(Rule(), Case(judge, judged, ((30, 30 + length),), (mine, 0), dead=35, tick=tick))[1]
        - max(35, 30 + length)
        for judge, judged, tick, length, mine in itertools.product(range(5), range(5), range(5), (8, 20, 40), (0, 4))
    ]

    print(f"\nworst without a pause {max(plain)} s, after a pause {max(paused)} s")
    assert max(plain) <= 25
    assert max(paused) <= 20


def _judge_with(*, gap: float = 7.0, good: int = 2, wait: float = BEAT) -> MayJudge:
    """Return a rule of the same shape with other numbers."""

    def may_judge(beats: Sequence[float], now: float) -> bool:
        if now - beats[-1] > gap:
            return False
        start = len(beats) - 1
        while start > 0 and beats[start] - beats[start - 1] <= gap:
            start -= 1
        return len(beats) - start >= good and now >= beats[start + good - 1] + wait

    return may_judge


MUTANTS = {
    "judges at once after a pause": Rule(may_judge=lambda beats, now: True),
    "one good beat, no wait": Rule(may_judge=_judge_with(good=1, wait=0)),
    "waits from the first beat only": Rule(may_judge=_judge_with(wait=0)),
    "a gap is more than ten seconds": Rule(may_judge=_judge_with(gap=10)),
    "a gap is as long as the silence": Rule(may_judge=_judge_with(gap=20)),
    "remembers that it might judge": Rule(fresh=False),
    "expired leases are judged without the guard": Rule(covers_expired=False),
    "an expired lease is judged at once": Rule(patience=0),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_judges_are_caught(mutant: str) -> None:
    """Each weaker rule revokes an attempt of a living worker in some case."""
    _, case, found = wrong(MUTANTS[mutant], pauses(**FEW))

    print(f"\n{mutant}: {found[0]} at {found[1]} in {case}")
    assert case is not None


def mirrored(case: Case) -> Case:
    """Return the same pause with the two workers in each other's place."""
    return replace(case, judge=case.judged, judged=case.judge, back=(case.back[1], case.back[0]))


def test_everyone_would_revoke_everyone() -> None:
    """Who judges at once after a pause is judged at once too: both lose their work, in the same pause."""
    both = [
        case
        for case in pauses(**FEW)
        if case.frozen == (0, 0)
        and verdict(MUTANTS["judges at once after a pause"], case)[0]
        and verdict(MUTANTS["judges at once after a pause"], mirrored(case))[0]
    ]

    print(f"\n{len(both)} pauses, for example {both[:1]}")
    assert both
    assert not any(verdict(Rule(), case)[0] or verdict(Rule(), mirrored(case))[0] for case in both)


def test_the_rule_reads_the_product_s_numbers() -> None:
    """The right numbers in the other shape decide as the product's rule does."""
    same = _judge_with()
    for beats in ([0.0], [0.0, 5.0], [0.0, 5.0, 13.0], [0.0, 8.0, 13.0, 18.0], [0.0, 7.0, 14.0]):
        for now in range(int(beats[-1]), int(beats[-1]) + 9):
            assert lease.may_judge(beats, float(now)) == same(beats, float(now)), (beats, now)
    assert timedelta(seconds=7) == lease.GAP
