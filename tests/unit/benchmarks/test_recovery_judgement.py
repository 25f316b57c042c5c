"""The harness of the recovery benchmark judges by what the witness saw."""

from __future__ import annotations

from typing import Any

import pytest

from tests.benchmarks.recovery.judgement import (
    AFTER,
    BEFORE,
    END,
    Evidence,
    Execution,
    Hit,
    Request,
    Verdict,
    is_stale_finish,
    judge,
    recoveries,
    spread,
)
from tests.benchmarks.recovery.report import tables
from tests.benchmarks.recovery.systems import SYSTEMS


def verdict(**more: Any) -> Verdict:
    """Judge a run of two jobs that went well, but for what is given."""
    went_well: dict[str, Any] = {
        "keys": ["a", "b"],
        "executions": [Execution(1, "a", 10, 1.0, 1.5, True), Execution(2, "b", 10, 2.0, 2.5, True)],
        "requests": [Request("a"), Request("b")],
        "rows": ["a", "b"],
        "states": {"done": 2},
        "open_states": frozenset({"queued", "running"}),
        "failed_states": frozenset({"failed"}),
    }
    return judge(Evidence(**went_well | more))


def test_a_run_without_a_fault_has_nothing_to_tell() -> None:
    """Each effect and each row once: every figure is nought, and there is no recovery."""
    told = verdict().as_dict()

    assert {name: figure for name, figure in told.items() if figure} == {"jobs": 2, "states": {"done": 2}}
    assert told["recovery"] is None


def test_stuck_and_failed_are_read_from_the_queue() -> None:
    """Open states are stuck when nothing moves any more; failed ones are counted apart, finished ones nowhere."""
    told = verdict(states={"running": 2, "queued": 1, "failed": 4, "done": 5})

    assert (told.stuck, told.failed) == (3, 4)


def test_an_effect_that_nobody_asked_for_is_lost_whatever_the_queue_says() -> None:
    """A job that the queue calls done and whose effect is missing has lost it; its row is counted by itself."""
    told = verdict(requests=[Request("a")], rows=["b"])

    assert (told.lost_effects, told.lost_rows) == (1, 1)


def test_the_poison_job_loses_nothing() -> None:
    """It never comes to its effect; its starts are the deaths, and no repetition of a normal job."""
    poison = [Execution(3, "poison00002", 11, 3.0), Execution(4, "poison00002", 12, 4.0)]
    well = [Execution(1, "a", 10, 1.0, 1.5, True), Execution(2, "b", 10, 2.0, 2.5, True)]
    told = verdict(keys=["a", "b", "poison00002"], executions=[*well, *poison])

    assert (told.poison_deaths, told.repeated_executions, told.lost_effects, told.lost_rows) == (2, 0, 0, 0)


def test_every_request_without_a_key_is_an_effect() -> None:
    """Three requests for one job: one job is touched, two effects are too many."""
    told = verdict(requests=[Request("a"), Request("a"), Request("a"), Request("b")])

    assert (told.duplicate_effects, told.extra_effects, told.repeated_requests) == (1, 2, 2)


def test_a_provider_with_keys_applies_a_key_once() -> None:
    """A repeated key is a repeated request and no second effect; another key of the same job is one."""
    told = verdict(requests=[Request("a", "k1"), Request("a", "k1"), Request("b", "k2"), Request("b", "k3")])

    assert (told.duplicate_effects, told.extra_effects, told.repeated_requests) == (1, 1, 2)


def test_rows_written_twice_are_seen_twice() -> None:
    """The table has no unique constraint, so the second row is there to be counted."""
    assert verdict(rows=["a", "a", "b"]).duplicate_rows == 1


def test_recovery_is_the_time_to_the_next_start_of_the_same_job() -> None:
    """Earlier starts and starts of other jobs do not count; of several later ones the first does."""
    executions = [
        Execution(1, "a", 10, 1.0),
        Execution(2, "b", 10, 6.0),
        Execution(3, "a", 11, 9.5),
        Execution(4, "a", 12, 30.0),
    ]

    assert recoveries([Hit(1, "a", 2.0, BEFORE), Hit(2, "b", 7.0, AFTER)], executions) == [7.5, None]


def test_what_died_in_the_moment_of_its_start_did_not_recover_then() -> None:
    """The fault's time is read before it is done: a start after that time that died of it is the hit itself."""
    executions = [Execution(1, "a", 10, 5.01), Execution(2, "a", 11, 20.0)]

    assert recoveries([Hit(1, "a", 5.0, BEFORE)], executions) == [15.0]


def test_a_killed_execution_that_never_started_again_is_never_recovered() -> None:
    """Its effect may be there: the job is open all the same."""
    hits = [Hit(1, "a", 5.0, AFTER), Hit(2, "b", 5.0, BEFORE)]
    told = verdict(hits=hits, states={"running": 1, "failed": 1})

    assert (told.hit_before, told.hit_after, told.never, told.went_on, told.recovered) == (1, 1, 2, 0, 0)


def test_a_handler_that_had_returned_needed_no_second_start() -> None:
    """Hit between its return and its end in the queue, and done: nothing was to be recovered."""
    told = verdict(hits=[Hit(1, "a", 5.0, END)])

    assert (told.hit_at_end, told.never, told.went_on) == (1, 0, 1)


def test_a_job_that_was_done_before_the_kill_needed_no_second_start() -> None:
    """Nothing is open and nothing failed: its end was on record, although its handler had not said so yet."""
    told = verdict(hits=[Hit(1, "a", 5.0, AFTER)])

    assert (told.never, told.went_on) == (0, 1)


def test_a_process_that_lives_may_go_on_by_itself() -> None:
    """A cut connection kills no process: a job that came to its effect went on, one that did not is never recovered."""
    hits = [Hit(1, "a", 5.0, BEFORE, deadly=False), Hit(2, "b", 5.0, BEFORE, deadly=False)]
    told = verdict(hits=hits, requests=[Request("a")], states={"done": 1, "failed": 1})

    assert (told.went_on, told.never) == (1, 1)


def test_an_execution_that_meets_two_faults_was_hit_once() -> None:
    """It lived on after the first one; its recovery runs from there."""
    hits = [Hit(1, "a", 5.0, BEFORE, deadly=False), Hit(1, "a", 7.0, AFTER, deadly=False)]
    starts = [Execution(1, "a", 10, 4.0, None, True), Execution(2, "b", 10, 4.0), Execution(3, "a", 11, 8.0)]
    told = verdict(hits=hits, executions=starts)

    assert (told.hit_before, told.hit_after, told.recovered) == (1, 0, 1)
    assert told.recovery == {"min": 3.0, "median": 3.0, "max": 3.0}


@pytest.mark.parametrize(
    ("seconds", "told"),
    [([], None), ([2.04], (2.0, 2.0, 2.0)), ([9.0, 1.0, 2.0, 4.0], (1.0, 3.0, 9.0))],
    ids=["none", "one", "several"],
)
def test_the_middle_of_recoveries_is_their_median(seconds: list[float], told: tuple[float, ...] | None) -> None:
    """An even number has the mean of the two in the middle."""
    found = spread(seconds)

    assert (found and tuple(found.values())) == told


@pytest.mark.parametrize(
    ("closed", "returned", "stale"),
    [(10.0, 15.0, True), (10.0, None, True), (15.2, 15.0, False), (14.8, 15.0, False), (None, None, False)],
    ids=["long before", "owner never ended", "after", "same moment", "still open"],
)
def test_a_job_closed_before_its_owner_came_to_its_end_was_closed_by_another(
    closed: float | None, returned: float | None, stale: bool
) -> None:
    """Only the owner may close a job, and it does so when its handler has returned."""
    assert is_stale_finish(closed, returned) is stale


def test_the_table_says_never_with_the_time_that_was_watched() -> None:
    """A system that recovers nothing has a row like all others, and a run that could not be made says why."""
    run = {
        "system": "ours",
        "variant": "defaults",
        "scenario": "kill",
        "seed": 1,
        "faults": 1,
        "watched": 90,
        "worker_exits": 0,
    }
    killed = verdict(hits=[Hit(1, "a", 5.0, AFTER)], states={"running": 1}).as_dict()
    text = tables([{**run, **killed}, {**run, "seed": 2, "error": "no server"}])

    assert "| this package, defaults | 1 | 1 | 0 / 1 / 0 | 1 | 0 | 0 | 0 | 0 / 0 | –; 1 never within 90 s |" in text
    assert "| this package, defaults | could not be run: no server | " in text
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1


def test_every_system_is_described_alike() -> None:
    """Every peer is pinned, has a first variant with its defaults, and no state is both open and failed."""
    for system in SYSTEMS:
        assert system.variants[0].name == "defaults"
        assert not system.open & system.failed
        assert bool(system.requirements) == (system.name != "ours")
