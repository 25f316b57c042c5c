"""The settings dict: defaults, and what is said about wrong values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_jobs.conf import KEYS, JobsSettings, get_settings, problems
from django_jobs.exceptions import DefinitionError

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
WRONG_FOR: dict[type, tuple[Any, ...]] = {
    timedelta: (5, "5", None, timedelta(0), timedelta(milliseconds=999), timedelta(days=-1)),
    bool: ("yes", 1, None),
    int: (0, -1, True, 1.5, "4", None),
    str: (5, None, b"x", "a\x00b", "\udcff"),
    tuple: ("shop.jobs", 5, None, [5], {"a"}),
    dict: (5, None, "billing", ["billing"], {"billing": "a@example.com"}),
}
CASES = [
    pytest.param(key, value, id=f"{key}={value!r}")
    for key, name in KEYS.items()
    for value in WRONG_FOR[type(getattr(JobsSettings(), name))]
    if (key, value) != ("COROUTINES", 0)  # none beside the threads
]


@pytest.mark.parametrize(("key", "value"), CASES)
def test_value_of_a_wrong_kind_is_named(key: str, value: Any) -> None:
    """The message has the setting, what it must be, and what it is."""
    (found,) = problems({key: value})

    assert key in found
    assert "must be" in found
    assert repr(value) in found


def test_every_setting_is_documented() -> None:
    """The settings page is made of these texts."""
    assert [item.name for item in fields(JobsSettings) if not item.metadata.get("doc")] == []


def test_defaults_have_no_problems() -> None:
    """An empty dict, a missing one and the defaults themselves are all right."""
    assert problems({}) == []
    assert problems({key: getattr(JobsSettings(), name) for key, name in KEYS.items()}) == []


@pytest.mark.parametrize(
    ("key", "hint"), [("HEARTBEET", "HEARTBEAT"), ("heartbeat", "HEARTBEAT"), ("THREAD", "THREADS"), (5, None)]
)
def test_unknown_key_comes_with_a_suggestion(key: Any, hint: str | None) -> None:
    """A typo must not switch a setting off silently."""
    (found,) = problems({key: 1})

    assert repr(key) in found
    assert (f"Did you mean {hint}?" in found) is (hint is not None)


def test_every_problem_is_told() -> None:
    """Not only the first one."""
    assert len(problems({"THREADS": 0, "PROCESSES": 0, "COLOUR": 1})) == 3


@pytest.mark.parametrize("given", [None, [], "x", 5])
def test_settings_that_are_no_dict_are_told(given: Any) -> None:
    """So is the kind of what was given."""
    assert "must be a dict" in problems(given)[0]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"HEARTBEAT": 15 * SECOND}, "SILENT_AFTER"),
        ({"SILENT_AFTER": 9 * SECOND}, "SILENT_AFTER"),
        ({"GRACE": 10 * SECOND}, "MAX_CALL"),
        ({"MAX_CALL": 30 * SECOND}, "MAX_CALL"),
        ({"KEEP_ROWS": 89 * DAY}, "KEEP_DEAD_CONTENT"),
        ({"KEEP_CONTENT": 401 * DAY}, "KEEP_CONTENT"),
        ({"KEEP_WORKERS": 39 * SECOND}, "KEEP_WORKERS"),
        ({"SOFT_TIMEOUT": True, "CLEANUP": 2 * SECOND}, "CLEANUP"),
    ],
)
def test_settings_that_contradict_each_other_are_told(given: Mapping[str, Any], named: str) -> None:
    """Each value is allowed, but not beside the others."""
    (found,) = problems(given)

    assert named in found


@pytest.mark.parametrize(
    ("queues", "told"),
    [
        ({"mail": {"capacity": 0}}, "['mail']['capacity'] must be a whole number of at least 1, not 0"),
        ({"mail": {"limit": True}}, "['mail']['limit'] must be a whole number of at least 1, not True"),
        ({"mail": {"capacity": None}}, "not None"),
        ({"mail": {"capacity": 1.5}}, "not 1.5"),
        ({"mail": {"capacityy": 5}}, "Did you mean capacity?"),
        ({"mail": {"Limit": 5}}, "Did you mean limit?"),
        ({"mail": {"colour": 5}}, "has no entry 'colour'."),
        ({"": {"capacity": 5}}, "The queue name is empty"),
        ({5: {"capacity": 5}}, "The queue name is of type int"),
        ({"mäil": {"capacity": 5}}, "printable ASCII"),
    ],
)
def test_wrong_bound_of_a_queue_is_told(queues: Mapping[Any, Any], told: str) -> None:
    """A bound that cannot be, an unknown one with a suggestion, and a queue that cannot exist."""
    (found,) = problems({"QUEUES": queues})

    assert "DJANGO_JOBS['QUEUES']" in found
    assert told in found


def test_bounds_of_queues_are_taken() -> None:
    """Both may be given, either, or none."""
    queues = {"mail": {"capacity": 1, "limit": 2}, "reports": {"limit": 1}, "other": {}}

    assert problems({"QUEUES": queues}) == []


def test_settings_in_force_are_typed() -> None:
    """Lists become tuples; what is not given has its default."""
    with override_settings(DJANGO_JOBS={"IMPORTS": ["a", "b"], "REDACT": ["iban"], "THREADS": 2}):
        rules = get_settings()
        assert rules is get_settings()

    assert (rules.imports, rules.redact, rules.threads, rules.poll) == (("a", "b"), ("iban",), 2, SECOND)


def test_change_of_settings_is_noticed() -> None:
    """Another setting's change leaves them alone."""
    before = get_settings()
    with override_settings(USE_TZ=False):
        assert get_settings() is before
    with override_settings(DJANGO_JOBS={}):
        assert get_settings() is not before


def test_wrong_settings_stop_the_program() -> None:
    """The error lists every problem."""
    with (
        override_settings(DJANGO_JOBS={"THREADS": 0, "COLOUR": 1}),
        pytest.raises(DefinitionError, match=r"THREADS.*COLOUR"),
    ):
        get_settings()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"limit": 0}, "['reports']['limit'] must be a whole number of at least 1, not 0"),
        ({"limit": True}, "['limit'] must be"),
        ({"capacity": "9"}, "['capacity'] must be"),
        ({"limits": 2}, "no entry 'limits'. Did you mean limit?"),
        ({5: 2}, "no entry 5."),
    ],
)
def test_bounds_of_a_queue_are_checked(entry: dict[Any, Any], said: str) -> None:
    """A typo in a bound must not leave a queue without one."""
    (found,) = problems({"QUEUES": {"reports": entry}})

    assert said in found


def test_bounds_of_a_queue_can_be_given() -> None:
    """Either bound, both, or none."""
    assert problems({"QUEUES": {"a": {"limit": 1}, "b": {"capacity": 5, "limit": 2}, "c": {}}}) == []


@pytest.mark.parametrize("depth", [101, 10**6])
def test_depth_beyond_the_stack_is_refused(depth: int) -> None:
    """Each level of a payload takes frames of the interpreter's stack."""
    (found,) = problems({"PAYLOAD_MAX_DEPTH": depth})

    assert found == f"DJANGO_JOBS['PAYLOAD_MAX_DEPTH'] must be a whole number from 1 to 100, not {depth}."
    assert problems({"PAYLOAD_MAX_DEPTH": 100}) == []
