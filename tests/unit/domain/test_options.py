"""What one enqueue may decide: accepted as it is, or refused by name before any SQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from django_jobs.domain.options import EnqueueOptions, check
from django_jobs.exceptions import DefinitionError, KeyFormatError

OPTIONS = EnqueueOptions(
    job_type="shop.charge",
    version=1,
    queue_name="default",
    priority=0,
    key=None,
    key_scope="shop.charge",
    key_ttl=timedelta(days=7),
    on_duplicate="return",
    subject="",
    owner="",
    useful_for=None,
)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"key": "order:7", "tenant": "acme"},
        {"priority": -100, "queue_name": "bulk", "detached": True},
        {"run_after": timedelta(0)},
        {"run_after": timedelta(days=3660)},
        {"run_after": datetime(2026, 3, 1, tzinfo=UTC), "database": "other", "subject": "order:7"},
    ],
)
def test_options_that_work_are_taken(changes: dict[str, Any]) -> None:
    """A change is a checked copy; what was given for one job is marked as no template."""
    changed = OPTIONS.changed(**changes)
    assert {name: getattr(changed, name) for name in changes} == changes
    assert changed.literal == {"key", "subject"} & set(changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"colour": "red"}, "no option 'colour'"),
        ({"priority": 101}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"detached": "no"}, "detached"),
        ({"run_after": datetime(2026, 3, 1)}, "aware"),  # noqa: DTZ001  the mistake that is refused
        ({"run_after": datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))}, "aware"),
        ({"run_after": timedelta(seconds=-1)}, "run_after"),
        ({"run_after": 5}, "run_after"),
    ],
)
def test_options_that_cannot_work_are_refused_by_name(changes: dict[str, Any], words: str) -> None:
    """Each refusal names the option."""
    with pytest.raises(DefinitionError, match=words):
        OPTIONS.changed(**changes)


@pytest.mark.parametrize(
    ("name", "value"),
    [("key_ttl", timedelta(0)), ("key_ttl", None), ("useful_for", timedelta(0)), ("useful_for", 7)],
)
def test_declared_times_are_checked(name: str, value: Any) -> None:
    """A lifetime below a second, or of another type, is refused."""
    fields = {field: getattr(OPTIONS, field) for field in OPTIONS.__dataclass_fields__}
    with pytest.raises(DefinitionError, match=name):
        check(EnqueueOptions(**{**fields, name: value}))


@pytest.mark.parametrize("changes", [{"key": ""}, {"tenant": "a\x00"}, {"subject": "x" * 201}, {"queue_name": ""}])
def test_names_are_printable_and_short(changes: dict[str, Any]) -> None:
    """A key or name that one database would refuse is refused for both."""
    with pytest.raises(KeyFormatError):
        OPTIONS.changed(**changes)
