"""S6: what strangers wrote cannot begin a line of a log, hide in it, or drive a terminal."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from django_jobs.domain.lines import indented, one_line
from django_jobs.models import Job
from django_jobs.observe.logs import log
from django_jobs.outbox.losses import tell_of_dead
from tests.factories_pages import one_of_each
from tests.integration.admin.test_hostile import plant
from tests.integration.commands.test_jobs_command import jobs
from tests.integration.worker.conftest import Declare, run_one

HOSTILE = {
    "line ends": "a\r\n2026-11-30 12:00:00 ERROR root: forged\nb\x85c\u2028d\u2029e\x0bf\x0cg",
    "terminal": "\x1b[2J\x1b]0;title\x07\x9b31m\x08\x7f",
    "bidi": "\u202egnp.exe\u2066\u2069\u200b\ufeff",
    "unstorable": "\ud800\udfff\U000e0001\uffff",
}
UNSEEN = set("\r\x1b\x07\x08\x0b\x0c\x7f\x85\x9b\u200b\u2028\u2029\u202e\u2066\u2069\ufeff")


@pytest.mark.parametrize("kind", HOSTILE)
def test_s06_any_text_is_one_visible_line(kind: str) -> None:
    """S6: nothing of it ends a line, and what cannot be seen is written as an escape that any encoding holds."""
    line = one_line(HOSTILE[kind])

    assert len(line.splitlines()) == 1
    assert line.isprintable()
    assert line.encode()
    assert one_line("Grüße 漢字 😀") == "Grüße 漢字 😀"


def test_s06_traceback_forges_no_line() -> None:
    """S6: of a text of several lines only the first begins where lines of a log begin."""
    first, *others = indented(f"Traceback\n{HOSTILE['line ends']}\n{HOSTILE['terminal']}").split("\n")

    assert first == "Traceback"
    assert others
    assert all(line.startswith("  ") and line.isprintable() for line in others)


@pytest.mark.parametrize("kind", HOSTILE)
def test_s06_fields_of_a_record_are_lines(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """S6: each attribute that a format string may name holds one line, and a JSON line comes back as it was."""
    with caplog.at_level(logging.INFO, logger="django_jobs"):
        log("attempt.started", {"job_type": HOSTILE[kind], "queue_name": HOSTILE[kind], "number": 1})
    (record,) = caplog.records

    assert one_line(HOSTILE[kind]) == vars(record)["job_type"] == vars(record)["queue"]
    assert json.loads(json.dumps(vars(record), default=str))["job_type"] == one_line(HOSTILE[kind])


@pytest.mark.parametrize("kind", HOSTILE)
def test_s06_answer_of_a_destination_is_one_line(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """S6: what a destination said stands on the line that tells of it."""
    job = Job().pk
    with caplog.at_level(logging.INFO, logger="django_jobs"):
        tell_of_dead(delivery_id=job, event_id=job, destination="crm", reason="nacked", message=HOSTILE[kind])

    told = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [len(line.splitlines()) for line in told] == [1]
    assert not UNSEEN & set(told[0])


@pytest.mark.django_db(transaction=True)
def test_s06_error_of_a_handler_forges_no_line(declare: Declare, caplog: pytest.LogCaptureFixture) -> None:
    """S6: a handler's error with line ends and escapes is logged without them, at every level."""

    def handler(context: Any) -> None:
        with context.complete():
            pass
        raise ValueError(HOSTILE["line ends"] + HOSTILE["terminal"])

    declare(handler, takes_context=True).enqueue()
    with caplog.at_level(logging.DEBUG, logger="django_jobs"):
        run_one()
    lines = [line for record in caplog.records for line in record.getMessage().split("\n")]

    assert any("forged" in line for line in lines)
    assert not [line for line in lines if line.startswith("2026-11-30") or not line.isprintable()]


@pytest.mark.django_db
@pytest.mark.parametrize("kind", ["line ends", "terminal", "bidi"])
def test_s06_no_verb_drives_the_terminal(kind: str) -> None:
    """S6: with the text in every text column of every table, no verb that reads prints an unseen sign."""
    rows = one_of_each()
    plant(rows, HOSTILE[kind])
    for words in (
        ("show", rows[Job].pk), ("explain", rows[Job].pk), ("list",), ("status",), ("pauses",), ("verify",), ("doctor",),
        ("subscriptions", "list"), ("contract",), ("schedules",),
    ):  # fmt: skip
        printed = jobs(*words)[0]
        assert printed, words
        assert not UNSEEN & set(printed), words
        assert "\n2026-11-30 12:00:00 ERROR" not in printed, words
