"""How times, losses and reasons are told, and how tables are laid out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from django_jobs.domain.states import DeadReason
from django_jobs.management.tables import pairs, table
from django_jobs.operate.wording import counted, dead_reason, duration, exit_text, instant, relative

NOON = datetime(2026, 11, 29, 12, 0, 0, 500_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.0123, "12 ms"),
        (1, "1 s"),
        (3.21, "3.2 s"),
        (59.9, "59.9 s"),
        (60, "1 min"),
        (303, "5 min 3 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86400 * 3 + 3600 * 4, "3 d 4 h"),
        (-303, "5 min 3 s"),
    ],
)
def test_duration_is_told_in_two_units(seconds: float, text: str) -> None:
    """A span is told in at most two units, whatever its sign."""
    assert duration(timedelta(seconds=seconds)) == text


def test_instant_is_told_in_utc() -> None:
    """An instant of any zone is told in UTC to the second, and none as a dash."""
    assert instant(NOON.astimezone(timezone(timedelta(hours=2)))) == "2026-11-29T12:00:00Z"
    assert instant(None) == "-"


def test_relative_tells_past_and_future() -> None:
    """An instant is told with its distance from now."""
    assert relative(NOON + timedelta(minutes=5), NOON) == "2026-11-29T12:05:00Z (in 5 min)"
    assert relative(NOON - timedelta(hours=2), NOON) == "2026-11-29T10:00:00Z (2 h ago)"


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (None, "its process ended"),
        (3, "its process exited with code 3"),
        (-9, "its process was ended by SIGKILL"),
        (-250, "its process was ended by signal 250"),
    ],
)
def test_exit_status_is_told(status: int | None, text: str) -> None:
    """A signal has its name, an exit code its number."""
    assert exit_text(status) == text


@pytest.mark.parametrize("reason", list(DeadReason))
def test_every_dead_reason_has_words(reason: DeadReason) -> None:
    """Each reason is told in words of its own."""
    assert "does not know" not in dead_reason(reason)


def test_unknown_dead_reason_is_admitted() -> None:
    """A reason of a later version is not guessed."""
    assert dead_reason("later") == "for a reason that this version does not know"


def test_counted_follows_the_number() -> None:
    """One is singular; an irregular plural can be given."""
    assert [counted(1, "job"), counted(2, "job"), counted(2, "loss", "losses")] == ["1 job", "2 jobs", "2 losses"]


def test_table_is_aligned() -> None:
    """Columns begin at one place, headings are capitals, and nothing trails."""
    text = table(("name", "many"), [("short", 1), ("a longer one", None)])

    assert text.splitlines() == ["NAME          MANY", "short         1", "a longer one  -"]


def test_table_aligns_wide_signs() -> None:
    """A sign of double width counts for two."""
    assert table(("a", "b"), [("日本", 1), ("x", 2)]).splitlines() == ["A     B", "日本  1", "x     2"]


def test_table_cuts_and_folds_cells() -> None:
    """A cell is one line of bounded width."""
    assert table(("a",), [("line\nline " * 20,)], widest=12).splitlines() == ["A", "line line l…"]


def test_stored_text_cannot_drive_the_terminal() -> None:
    """Control characters of stored text are shown as a sign that harms nobody."""
    assert "\x1b" not in table(("a",), [("\x1b[2Jgone\x07",)])
    assert pairs([("name", "\x1b]0;title\x07")]) == "name  �]0;title�"


def test_pairs_are_aligned() -> None:
    """Values begin at one place and are not cut."""
    assert pairs([("a", ""), ("longer", "x" * 100)]) == f"a       -\nlonger  {'x' * 100}"
