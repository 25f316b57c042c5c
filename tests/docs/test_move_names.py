"""The pages that tell how to move here, and the one about what is missing, name nothing that does not exist."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

import pytest

import django_jobs
from django_jobs import exceptions
from django_jobs.conf import KEYS, QUEUE_KEYS, RESOURCE_KEYS
from django_jobs.define.decorators import _ALLOWED
from django_jobs.define.definition import DurableJob
from django_jobs.define.schedules import schedule
from django_jobs.domain.schedules import Missed
from django_jobs.domain.states import AttemptOutcome, JobState
from django_jobs.enqueue.batch_results import BatchResult
from django_jobs.enqueue.outcome import EnqueueResult
from django_jobs.enqueue.result import JobResult
from django_jobs.management.commands.runworker import Command
from django_jobs.management.verbs import VERBS
from docs import generate
from tests.docs.moving import HOW_TO, NAMES, text_of

MISSING = generate.DOCS / "explanation" / "what-it-does-not-do.md"
CODE = re.compile(r"`([^`]+)`")
WORD = re.compile(r"[A-Za-z_][\w-]*")
LINK = re.compile(r"\]\(([^)#]+\.md)(?:#[\w-]+)?\)")
# Words of Django and of the shell, and what stands in for a value.
ORDINARY = {
    "manage",
    "py",
    "DJANGO_JOBS",
    "NAME",
    "rows",
    "id",
    "timeout",
    "value",
    "total",
    "backends",
    "tasks",
    "django_jobs",
}
DJANGO = {"task", "get_result", "DurableBackend"}
KIT = {"JobsKit"}
SIGNALS = {"owner_alert"}


def words_of_the_package() -> set[str]:
    """Return every name that a page may give as ours."""
    known = {*django_jobs.__all__, *_ALLOWED, *KEYS, *QUEUE_KEYS, *RESOURCE_KEYS, *ORDINARY, *DJANGO, *KIT, *SIGNALS}
    known |= {name for name in vars(exceptions) if not name.startswith("_")}
    known |= {field.name for field in fields(django_jobs.RetryPolicy)}
    for kind in (DurableJob, JobResult, EnqueueResult, BatchResult, django_jobs.JobContext, django_jobs.batch):
        known |= {name for name in dir(kind) if not name.startswith("_")} | set(getattr(kind, "__annotations__", {}))
    known |= {state.value for kind in (JobState, AttemptOutcome, Missed) for state in kind}
    known |= {*inspect.signature(schedule).parameters, *inspect.signature(django_jobs.batch).parameters}
    known |= {"run_after", "tenant", "context", "jobs", "runworker", "tick", "continue", "reject"}
    return known | {verb.name for verb in VERBS}


def options_of_the_worker() -> set[str]:
    """Return the long options of ``runworker``."""
    parser = Command().create_parser("manage.py", "runworker")
    return {option.strip("-") for action in parser._actions for option in action.option_strings}


def ours(name: str) -> list[str]:
    """Return the code in the second column of the page's table."""
    rows = [line.replace("\\|", "").split(" | ") for line in text_of(name).splitlines() if line.startswith("| ")]
    return [code for row in rows if not row[0].startswith("|---") for code in CODE.findall(row[1])]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_in_our_column_exists(name: str) -> None:
    """Options, settings, commands, members and errors that stand for something of the other system are there."""
    known = words_of_the_package() | options_of_the_worker()
    words = {word.strip("-") for code in ours(name) for word in WORD.findall(code)}

    assert len(words) > 15
    assert sorted(words - known) == []


@pytest.mark.parametrize("name", [*NAMES, MISSING.stem])
def test_settings_verbs_and_links_in_the_text_exist(name: str) -> None:
    """Wherever a page names a setting or a verb, or links to a page, it is there."""
    folder, text = (MISSING.parent, MISSING.read_text()) if name == MISSING.stem else (HOW_TO, text_of(name))

    assert set(re.findall(r'DJANGO_JOBS\["(\w+)"\]', text)) <= set(KEYS)
    assert set(re.findall(r"`jobs ([a-z-]+)", text)) <= {verb.name for verb in VERBS}
    assert [link for link in LINK.findall(text) if not (folder / link).exists()] == []


def test_what_is_said_to_be_missing_is_missing() -> None:
    """An option that the list says is not there has not come meanwhile."""
    assert not {"debounce", "throttle", "rate"} & {*_ALLOWED, *KEYS}
    assert "throttling, debouncing" in MISSING.read_text()


def test_a_wrong_name_is_noticed() -> None:
    """The look above would find an option, a setting and a verb that do not exist."""
    known = words_of_the_package() | options_of_the_worker()

    assert not {"lock", "queueing_lock", "SOFT_LIMIT", "requeue", "soft_time_limit", "burst-mode"} & known
