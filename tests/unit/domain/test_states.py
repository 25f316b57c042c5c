"""The table of states and transitions."""

from __future__ import annotations

import pytest

from django_jobs.domain.states import BY_NAME, NOT_BUILT, TRANSITIONS, JobState, Resolution, is_unfinished


@pytest.mark.parametrize(
    ("state", "resolution", "expected"),
    [
        (JobState.SCHEDULED, None, True),
        (JobState.QUEUED, None, True),
        (JobState.RUNNING, None, True),
        (JobState.FAILED, None, True),
        (JobState.DEAD_LETTERED, None, True),
        (JobState.DEAD_LETTERED, Resolution.DISCARDED, False),
        (JobState.DEAD_LETTERED, Resolution.COMPENSATED, False),
        (JobState.SUCCEEDED, None, False),
        (JobState.CANCELLED, None, False),
    ],
)
def test_a_job_is_unfinished_until_nobody_is_needed(state: JobState, resolution: str | None, expected: bool) -> None:
    """A job is finished when it succeeded, was cancelled, or is a dead letter that a human has resolved."""
    assert is_unfinished(state, resolution) is expected


def test_nothing_leaves_a_terminal_state() -> None:
    """No transition starts from succeeded or cancelled, and every state can be reached."""
    terminal = {JobState.SUCCEEDED, JobState.CANCELLED}
    assert not any(transition.sources & terminal for transition in TRANSITIONS)
    assert {target for transition in TRANSITIONS for target in transition.targets} == set(JobState)


def test_every_move_out_of_running_is_fenced() -> None:
    """Only a proof of the attempt id takes a job from its holder."""
    from_running = [transition for transition in TRANSITIONS if JobState.RUNNING in transition.sources]
    assert len(from_running) >= 8
    assert all(transition.fenced for transition in from_running)


def test_transitions_have_names_of_their_own() -> None:
    """Names are unique, and what is not built yet is named in the table."""
    assert len(BY_NAME) == len(TRANSITIONS)
    assert NOT_BUILT.issubset(BY_NAME)
