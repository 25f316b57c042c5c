"""``jobs pause``, ``jobs resume`` and ``jobs pauses``."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from django.core.management import CommandError

from django_jobs import clock
from django_jobs.exceptions import PauseError
from django_jobs.models import Pause
from django_jobs.store.pauses import pause
from tests.integration.commands.test_jobs_command import jobs
from tests.scenes import NOON

pytestmark = pytest.mark.django_db
WHO = ("--as", "ann", "--reason", "provider is down")


def test_pause_and_resume_a_queue() -> None:
    """What is done is told, listed for people and programs, and undone."""
    with clock.override(lambda: NOON):
        text, code = jobs("pause", "queue", "payments", *WHO, "--for", "2h")
        assert (code, text.splitlines()[0]) == (
            0,
            "Paused queue payments until 2026-05-04T14:00:00Z. Workers know within about a second; what runs goes on.",
        )
        listed, _ = jobs("pauses")
        assert "provider is down" in listed
        (line,) = jobs("pauses", "--json")[0].splitlines()
        assert json.loads(line) == {
            "kind": "queue",
            "name": "payments",
            "actor": "ann",
            "reason": "provider is down",
            "paused_until": "2026-05-04T14:00:00.000000Z",
            "created_at": "2026-05-04T12:00:00.000000Z",
        }
        assert jobs("resume", "queue", "payments", "--as", "bob") == ("Resumed queue payments.\n", 0)
        assert jobs("resume", "queue", "payments", "--as", "bob")[0].startswith("Nothing to do")
        assert jobs("pauses") == ("Nothing is paused.\n", 0)


def test_pause_until_a_time() -> None:
    """An instant is in UTC unless it says otherwise."""
    with clock.override(lambda: NOON):
        jobs("pause", "type", "shop.charge_order", *WHO, "--until", "2026-05-04T18:00")

    assert Pause.objects.get().paused_until == NOON.replace(hour=18)


@pytest.mark.parametrize("until", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"])
def test_end_that_has_no_form_in_utc_is_a_usage_error(until: str) -> None:
    """On both databases, and before the first statement that would store it."""
    with pytest.raises(CommandError, match="is no time") as refused:
        jobs("pause", "queue", "payments", *WHO, "--until", until)
    assert (refused.value.returncode, Pause.objects.count()) == (2, 0)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"until": datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-14)))}, "in the range of UTC"),
        ({"reason": "\udcff"}, "reason of a pause has a lone surrogate"),
        ({"actor": "\udcff"}, "actor of a pause has a lone surrogate"),
        ({"reason": "a\x00"}, "no NUL"),
    ],
)
def test_pause_that_no_row_could_hold_is_refused(values: dict[str, Any], said: str) -> None:
    """In Python too, by an error of the package."""
    with pytest.raises(PauseError, match=said):
        pause("queue", "payments", **{"actor": "ann", "reason": "down", "using": "default", **values})
    assert Pause.objects.count() == 0


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("type", "gone.away", "declares no job type 'gone.away'"),
        ("queue", "nowhere", "nothing waits in it"),
        ("schedule", "shop.typo", "declares no schedule 'shop.typo'"),
    ],
)
def test_pause_of_something_unknown_is_done_and_doubted(kind: str, name: str, said: str) -> None:
    """It may belong to other code, or be a slip of the pen."""
    text, code = jobs("pause", kind, name, *WHO)

    assert (code, said in text, Pause.objects.count()) == (0, True, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("pause", "worker", "x", *WHO),
        ("pause", "queue", "x", "--as", "ann"),
        ("pause", "queue", "x", "--reason", "why"),
        ("pause", "queue", "x", "--as", " ", "--reason", "why"),
        ("pause", "queue", "x" * 101, *WHO),
        ("pause", "queue", "x", *WHO, "--for", "soon"),
        ("pause", "queue", "x", *WHO, "--until", "soon"),
        ("pause", "queue", "x", *WHO, "--until", "2020-01-01"),
        ("pause", "queue", "x", *WHO, "--for", "1h", "--until", "2999-01-01"),
        ("pause", "queue", "x", *WHO, "--for", "999999w"),
        ("resume", "queue", "x" * 101, "--as", "ann"),
    ],
)
def test_bad_words_are_refused(arguments: tuple[str, ...]) -> None:
    """Exit code 2 for programs, a sentence for people, and nothing is paused."""
    with pytest.raises(CommandError) as error:
        jobs(*arguments)

    assert error.value.returncode in {1, 2}
    assert Pause.objects.count() == 0
