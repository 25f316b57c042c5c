"""``manage.py jobs crashtest``: a table and an exit code, and nowhere but with DEBUG and in test runs."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command
from django.db.models import Value
from django.db.models.functions import Concat

from django_jobs import JobContext, job
from django_jobs.define.registry import unregister
from django_jobs.exceptions import PermanentError
from django_jobs.management.crashtest import KINDS
from django_jobs.testing import cells

sent: list[int] = []


def count_sent() -> int:
    """Count what the handler did by hand."""
    return len(sent)


def forget_sent() -> None:
    """Empty it."""
    sent.clear()


def make_group() -> None:
    """Make a row that the handler reads."""
    Group.objects.create(name="made")


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """A correct handler, one with an effect by hand, one that counts its tries in a row, and one that fails."""

    @job(type="crashtest.sound")
    def sound(name: str) -> None:
        Group.objects.filter(name="made").update(name=name)

    @job(type="crashtest.by_hand", takes_context=True)
    def by_hand(context: JobContext) -> None:
        sent.append(1)
        with context.complete():
            pass

    @job(type="crashtest.tried", takes_context=True)
    def tried(context: JobContext) -> None:
        Group.objects.update(name=Concat("name", Value("!")))
        with context.complete():
            pass

    @job(type="crashtest.fails")
    def fails() -> None:
        raise PermanentError("no such order")

    sent.clear()
    yield
    unregister("crashtest.tried")
    unregister("crashtest.fails")
    unregister("crashtest.sound")
    unregister("crashtest.by_hand")


def test_the_command_offers_the_kinds_of_the_kit() -> None:
    """It may not import them, as no command imports what is for tests."""
    assert tuple(KINDS.split(",")) == tuple(cells.KINDS)


def crashtest(*arguments: str) -> tuple[int, str]:
    """Run it, and return exit code and output."""
    output = StringIO()
    try:
        call_command("jobs", "crashtest", *arguments, stdout=output)
    except SystemExit as ended:
        return int(ended.code or 0), output.getvalue()
    return 0, output.getvalue()


@pytest.mark.django_db
def test_a_sound_handler() -> None:
    """Exit 0, and one line per point."""
    setup = f"{__name__}.make_group"
    chosen = ("--kinds", "kill,zombie", "--points", "handler.after,finish.before", "--setup", setup)

    code, text = crashtest("crashtest.sound", "--payload", '{"name": "x"}', *chosen)

    assert code == 0
    assert text.splitlines()[0].split() == ["point", "kill", "zombie"]
    assert [line.split() for line in text.splitlines()[1:3]] == [
        ["handler.after", "ok", "ok"],
        ["finish.before", "ok", "ok"],
    ]
    assert "crashtest.sound survives 4 faults at 2 points" in text


@pytest.mark.django_db
def test_a_handler_with_a_bug() -> None:
    """Exit 1, with the point and the repair."""
    names = ("--effects", f"{__name__}.count_sent", "--reset", f"{__name__}.forget_sent")

    code, text = crashtest("crashtest.by_hand", *names, "--expect", "1", "--kinds", "kill", "--points", "finish.before")

    assert code == 1
    assert text.splitlines()[1].split() == ["finish.before", "FAILED"]
    assert "REPAIR:   The request was made outside of the ledger." in text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("job_type", "point", "option", "found"),
    [
        ("crashtest.fails", "fail.before", ("--may-fail",), "PermanentError: no such order"),
        ("crashtest.tried", "finish.before", ("--may-vary", "a.b,auth_group.name"), "auth_group.name: 'made!!'"),
    ],
)
def test_what_is_wrong_unless_it_is_allowed(job_type: str, point: str, option: tuple[str, ...], found: str) -> None:
    """A job that fails without a fault, and a column that differs after one, are findings unless the options say so."""
    asked = (job_type, "--kinds", "kill", "--points", point, "--setup", f"{__name__}.make_group")

    code, text = crashtest(*asked)
    assert (code, found in text) == (1, True), text

    code, text = crashtest(*asked, *option)
    assert code == 0, text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("crashtest.gone",), "No handler is registered for job type 'crashtest.gone'"),
        (("crashtest.sound", "--payload", "{"), "--payload is not JSON"),
        (("crashtest.sound", "--payload", "[]"), "--payload takes a JSON object"),
        (("crashtest.sound", "--payload", "{}"), "name"),
        (("crashtest.by_hand", "--kinds", "explosion"), "kinds= takes a sequence"),
        (("crashtest.by_hand", "--points", "nowhere"), "There is no fault point 'nowhere'"),
        (("crashtest.by_hand", "--effects", "no.such.thing"), "no"),
    ],
)
def test_usage_errors(arguments: tuple[str, ...], message: str) -> None:
    """What does not exist ends with code 2 and a sentence."""
    with pytest.raises(CommandError, match=message) as refused:
        crashtest(*arguments)

    assert refused.value.returncode == 2


@pytest.mark.django_db
def test_it_is_refused_on_a_real_site(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """Without DEBUG, and outside of tests, nothing runs."""
    settings.DEBUG = False
    monkeypatch.setattr("django_jobs.testing.crashtest.is_test_run", lambda: False)

    with pytest.raises(CommandError, match="with DEBUG and in test runs only") as refused:
        crashtest("crashtest.sound")

    assert refused.value.returncode == 2
