"""The propagators that are shipped: language and time zone."""

from __future__ import annotations

import json
import zoneinfo
from datetime import UTC, datetime, timedelta, tzinfo
from datetime import timezone as fixed
from typing import Any

import pytest
from django.utils import timezone, translation

from django_jobs.propagation import Language, TimeZone


def test_language_is_active_inside_and_only_there() -> None:
    """What was active at the capture is active inside, and what was active before is so again."""
    language = Language()
    with translation.override("de"):
        value = json.loads(json.dumps(language.capture()))

    with translation.override("fr"), language.restore(value):
        assert translation.get_language() == "de"
    with translation.override("fr"):
        assert translation.get_language() == "fr"


def test_no_translation_is_nothing_to_carry() -> None:
    """Where translations are switched off, the handler gets what its process has."""
    with translation.override(None):
        assert Language().capture() is None


@pytest.mark.parametrize("value", [None, 5, ["de"], {}])
def test_other_values_are_no_language(value: Any) -> None:
    """A value that no capture made is an error, before anything is active."""
    with pytest.raises(ValueError, match="language"):
        Language().restore(value)


@pytest.mark.parametrize(
    ("zone", "value"),
    [
        (zoneinfo.ZoneInfo("Pacific/Auckland"), "Pacific/Auckland"),
        (UTC, 0),
        (fixed(timedelta(hours=5, minutes=30)), 330),
        (timezone.get_fixed_timezone(-210), -210),
    ],
)
def test_time_zone_is_current_inside_and_only_there(zone: tzinfo, value: Any) -> None:
    """A named one comes back by its name, a fixed one by its minutes."""
    moment = datetime(2026, 7, 1, tzinfo=UTC)
    with timezone.override(zone):
        captured = json.loads(json.dumps(TimeZone().capture()))

    with timezone.override("Asia/Tokyo"), TimeZone().restore(captured):
        inside = timezone.localtime(moment).utcoffset()

    assert captured == value
    assert inside == zone.utcoffset(moment)


class Odd(tzinfo):
    """A time zone of a project's own."""


@pytest.mark.parametrize("zone", [fixed(timedelta(seconds=7)), Odd()])
def test_time_zone_without_a_name_is_refused(zone: tzinfo) -> None:
    """What no other process could make again is no value to store."""
    with timezone.override(zone), pytest.raises(ValueError, match="no name"):
        TimeZone().capture()


@pytest.mark.parametrize("value", ["Nowhere/At_all", "../../etc/passwd", "/etc/passwd", "", None, ["UTC"], 99_999])
def test_other_values_are_no_time_zone(value: Any) -> None:
    """A value from a row is looked up by name in the database of time zones, and nowhere else."""
    with pytest.raises(ValueError, match="no time zone"):
        TimeZone().restore(value)
