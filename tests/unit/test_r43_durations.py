"""R43: no duration is read as "without end", at no public door: it is refused by a typed error, or it means what it says."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from django_jobs import Confirmed, RetryPolicy, effect, job
from django_jobs.conf import KEYS, JobsSettings, get_settings
from django_jobs.define import registry
from django_jobs.domain.durations import LONGEST
from django_jobs.domain.lease import LeaseTerms
from django_jobs.effects import adapter
from django_jobs.exceptions import JobsError, Snooze

MILLISECOND = timedelta(milliseconds=1)
VALUES: list[Any] = [
    0,
    None,
    -1,
    60,
    0.001,
    True,
    "60",
    float("nan"),
    float("inf"),
    timedelta(0),
    -MILLISECOND,
    MILLISECOND,
    timedelta(seconds=-1),
    LONGEST + MILLISECOND,
    timedelta.max,
    timedelta.min,
]
_numbers = itertools.count()


def _job(option: str, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def door(value: Any) -> Any:
        declared = job(type=f"tests.r43.{next(_numbers)}", key="{n}", **{option: value})(lambda n: None)
        return read(declared.definition)

    return door


def _effect(option: str, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def door(value: Any) -> Any:
        declared = {"dedupe": "key", "key_lifetime": timedelta(hours=1), option: value}
        operation = effect(f"r43.{next(_numbers)}", **declared)(lambda call: Confirmed("x"))
        return read(operation.declared)

    return door


def _setting(key: str) -> Callable[[Any], Any]:
    def door(value: Any) -> Any:
        from django.test import override_settings

        with override_settings(DJANGO_JOBS={key: value}):
            return getattr(get_settings(), KEYS[key])

    return door


# Door: how a value goes in, and what it means inside; then the values that are no error, with what they mean.
DEFAULTS = JobsSettings()
TIMES = [key for key, name in KEYS.items() if isinstance(getattr(DEFAULTS, name), timedelta)]
DOORS: dict[str, tuple[Callable[[Any], Any], dict[Any, Any]]] = {
    "@job budget": (_job("budget", lambda d: d.terms.budget), {None: DEFAULTS.budget}),
    "@job cleanup": (_job("cleanup", lambda d: d.terms.cleanup), {None: DEFAULTS.cleanup}),
    "@job max_runtime": (_job("max_runtime", lambda d: d.terms.max_runtime), {None: 20 * DEFAULTS.budget}),
    "@job key_ttl": (_job("key_ttl", lambda d: d.options.key_ttl), {None: DEFAULTS.key_ttl}),
    "@job useful_for": (_job("useful_for", lambda d: d.options.useful_for), {None: None}),
    "using run_after": (
        lambda value: job(type=f"tests.r43.{next(_numbers)}")(lambda n: None).using(run_after=value).options.run_after,
        {None: None, timedelta(0): timedelta(0), MILLISECOND: MILLISECOND},
    ),
    "LeaseTerms budget": (lambda value: LeaseTerms(budget=value).budget, {}),
    "LeaseTerms cleanup": (lambda value: LeaseTerms(cleanup=value).cleanup, {}),
    **{
        f"RetryPolicy {name}": (lambda value, name=name: getattr(RetryPolicy(**{name: value}), name), means)
        for name, means in {
            "base": {MILLISECOND: MILLISECOND},
            "cap": {},
            "transient_max_age": {MILLISECOND: MILLISECOND},
            "reconcile_max_age": {MILLISECOND: MILLISECOND},
        }.items()
    },
    "@effect timeout": (_effect("timeout", lambda o: o.timeout), {MILLISECOND: MILLISECOND}),
    "@effect key_lifetime": (_effect("key_lifetime", lambda o: o.guarantees.key_lifetime), {MILLISECOND: MILLISECOND}),
    **{
        f"@effect {name}": (
            _effect(name, lambda o, name=name: getattr(o.guarantees, name)),
            {timedelta(0): timedelta(0), MILLISECOND: MILLISECOND},
        )
        for name in ("settle", "visible_after")
    },
    "Snooze": (lambda value: Snooze(value).delay, {timedelta(0): timedelta(0), MILLISECOND: MILLISECOND}),
    **{f"setting {key}": (_setting(key), {}) for key in TIMES},
}


@pytest.fixture(autouse=True)
def declared() -> Iterator[None]:
    """Forget what a test declared."""
    jobs, effects = dict(registry._jobs), dict(adapter._declared)
    yield
    for known, before in ((registry._jobs, jobs), (adapter._declared, effects)):
        known.clear()
        known.update(before)  # type: ignore[arg-type]


def _means(means: dict[Any, Any], value: Any) -> tuple[bool, Any]:
    """Look a value up by type too: 0 and False are one key of a dict."""
    for known, meaning in means.items():
        if type(known) is type(value) and known == value:
            return True, meaning
    return False, None


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("name", DOORS)
def test_r43_duration_is_refused_or_means_what_it_says(name: str, value: Any) -> None:
    """Nothing falsy, negative, endless or of another kind is taken for "no limit"."""
    door, means = DOORS[name]
    allowed, meaning = _means(means, value)

    if allowed:
        assert door(value) == meaning
        return
    with pytest.raises(JobsError) as caught:
        door(value)
    assert name.split()[-1].lower() in str(caught.value).lower()
