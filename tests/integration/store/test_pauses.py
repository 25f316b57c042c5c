"""Pauses: who may say what, and what workers read."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from django_jobs import clock
from django_jobs.exceptions import KeyFormatError, PauseError
from django_jobs.models import Pause
from django_jobs.store.pauses import Paused, pause, paused, pauses, resume
from tests.databases import Server
from tests.scenes import NOON, Told

HOUR = timedelta(hours=1)


def _pause(kind: str = "queue", name: str = "mail", **values: Any) -> Pause:
    return pause(kind, name, **{"actor": "ann", "reason": "provider is down", "using": "default", **values})


def test_pause_is_known_until_it_is_resumed(database: Server) -> None:
    """Queues and types are told apart; resuming twice says that there was nothing to do."""
    with Told() as told:
        _pause()
        _pause("type", "shop.mail")
        assert paused(using="default") == Paused(frozenset({"mail"}), frozenset({"shop.mail"}))
        assert resume("queue", "mail", actor="bob", using="default") is True
        assert resume("queue", "mail", actor="bob", using="default") is False

    assert paused(using="default") == Paused(frozenset(), frozenset({"shop.mail"}))
    assert [fields["name"] for fields in told.named("pause.set")] == ["mail", "shop.mail"]
    assert told.named("pause.ended") == [{"kind": "queue", "name": "mail", "actor": "bob"}]


def test_pause_ends_by_itself(database: Server) -> None:
    """It is in force before its end and not at it."""
    with clock.override(lambda: NOON):
        _pause(until=NOON + HOUR)
        assert paused(using="default").queues == {"mail"}
    with clock.override(lambda: NOON + HOUR):
        assert paused(using="default") == Paused()
        assert pauses(using="default") == []


def test_second_pause_replaces_the_first(database: Server) -> None:
    """One row per name: the last word counts, with its actor, reason, end and time."""
    with clock.override(lambda: NOON):
        _pause(until=NOON + HOUR)
    with clock.override(lambda: NOON + HOUR):
        row = _pause(actor="bob", reason="still down")

    assert (row.actor, row.reason, row.paused_until, row.created_at) == ("bob", "still down", None, NOON + HOUR)
    assert Pause.objects.count() == 1


def test_what_is_paused_is_left_out() -> None:
    """The names are asked by queue and by kind, whatever the payload version."""
    held = Paused(frozenset({"mail"}), frozenset({"shop.mail"}))

    assert held.open_queues(["default", "mail"]) == ["default"]
    assert [held.allows(kind) for kind in ("shop.mail 1", "shop.mail 2", "shop.mails 1")] == [False, False, True]


@pytest.mark.parametrize(
    ("values", "error", "said"),
    [
        ({"kind": "worker"}, PauseError, "'queue', 'type', 'schedule' or 'resource', not 'worker'"),
        ({"name": ""}, KeyFormatError, "queue name is empty"),
        ({"name": "x" * 101}, KeyFormatError, "more than 100"),
        ({"kind": "type", "name": "x" * 201}, KeyFormatError, "job type has 201 signs"),
        ({"name": "mäil"}, KeyFormatError, "printable ASCII"),
        ({"actor": ""}, PauseError, "needs an actor"),
        ({"actor": None}, PauseError, "needs an actor"),
        ({"actor": "x" * 151}, PauseError, "up to 150"),
        ({"reason": "  "}, PauseError, "needs a reason"),
        ({"reason": "a\x00b"}, PauseError, "no NUL"),
        ({"until": datetime(2999, 1, 1)}, PauseError, "aware datetime"),  # noqa: DTZ001
        ({"until": NOON - 99999 * HOUR}, PauseError, "must lie ahead"),
        ({"until": "soon"}, PauseError, "aware datetime"),
    ],
)
def test_pause_that_says_too_little_is_refused(
    database: Server, values: dict[str, Any], error: type[Exception], said: str
) -> None:
    """Nobody may hold a queue back without a name, a reason, and an end that lies ahead if there is one."""
    with pytest.raises(error, match=said):
        _pause(**values)

    assert Pause.objects.count() == 0


@pytest.mark.parametrize(
    ("values", "error"), [({"kind": "x"}, PauseError), ({"name": ""}, KeyFormatError), ({"actor": ""}, PauseError)]
)
def test_resume_checks_its_words_too(database: Server, values: dict[str, Any], error: type[Exception]) -> None:
    """A typo in the kind, name or actor is no resumption."""
    _pause()
    given = {"kind": "queue", "name": "mail", "actor": "bob", **values}
    with pytest.raises(error):
        resume(given["kind"], given["name"], actor=given["actor"], using="default")

    assert Pause.objects.count() == 1
