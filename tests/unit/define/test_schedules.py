"""Declaring schedules: what a second declaration of a name is, and which ones are refused."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from django_jobs import Cron, job, schedule
from django_jobs.define import registry, schedules
from django_jobs.domain.schedules import GRACE, LEAST_GRACE
from django_jobs.exceptions import DefinitionError
from django_jobs.operate.schedule_runner import LOOK_EVERY

HOURLY = "0 * * * *"


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Forget what a test declared."""
    kept = [(known, dict(known)) for known in (registry._jobs, schedules._schedules)]
    yield
    for known, before in kept:
        known.clear()
        known.update(before)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], ModuleType]]:
    """Write a module and import it, or execute it once more with another text."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two texts of one second and length would be one to it
    written: list[str] = []

    def write(name: str, text: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        if name in sys.modules:
            return importlib.reload(sys.modules[name])
        written.append(name)
        return importlib.import_module(name)

    yield write
    for name in written:
        sys.modules.pop(name, None)


def bill(tenant: str = "") -> None:
    """Write the bills of a tenant."""


def for_tenant(tenant: str) -> Callable[[datetime], dict[str, Any]]:
    """Make arguments= of a schedule."""
    return lambda tick: {"tenant": tenant}


JOBS = "from django_jobs import job\n@job(type='found.bill'{options})\ndef bill(tenant=''): pass\n"
SCHEDULE = (
    "from datetime import timedelta\nfrom django_jobs import Cron, schedule\n"
    "schedule(bill, Cron('{rule}'), arguments=lambda tick: {{}})\n"
)


def test_second_schedule_with_the_rule_of_the_first_is_refused() -> None:
    """The arguments of one tenant must not take the place of another's in silence; a name each, and both tick."""
    handler = job(type="tests.bill")(bill)
    schedule(handler, HOURLY, arguments=for_tenant("acme"))
    with pytest.raises(DefinitionError, match=r"'tests.bill' is declared twice.*name= tells them apart"):
        schedule(handler, HOURLY, arguments=for_tenant("globex"))
    schedule(handler, HOURLY, arguments=for_tenant("globex"), name="bills of globex")

    first = schedules.find_schedule("tests.bill")
    assert first is not None
    assert first.arguments_at(datetime(2026, 1, 1)) == {"tenant": "acme"}  # noqa: DTZ001


@pytest.mark.parametrize("options", [{"missed": "skip"}, {"grace": timedelta(hours=1)}], ids=str)
def test_second_schedule_that_differs_in_a_policy_alone_is_refused(options: dict[str, Any]) -> None:
    """What becomes of missed ticks is a part of the declaration too."""
    handler = job(type="tests.bill")(bill)
    schedule(handler, HOURLY)
    with pytest.raises(DefinitionError, match="declared twice"):
        schedule(handler, HOURLY, **options)


def test_second_schedule_that_differs_in_the_queue_is_refused() -> None:
    """``using`` makes another job of it."""
    handler = job(type="tests.bill")(bill)
    schedule(handler.using(tenant="acme"), HOURLY)
    with pytest.raises(DefinitionError, match="declared twice"):
        schedule(handler.using(tenant="globex"), HOURLY)


def test_schedule_of_the_decorator_and_one_beside_it_are_two() -> None:
    """Also with the same rule."""
    handler = job(type="tests.bill", schedule=HOURLY)(bill)
    with pytest.raises(DefinitionError, match="declared twice"):
        schedule(handler, HOURLY)


def test_schedules_of_two_modules_are_two(modules: Callable[[str, str], ModuleType]) -> None:
    """One in jobs.py and one in schedules.py, of the same job type and with the same rule."""
    text = JOBS.format(options="") + SCHEDULE.format(rule=HOURLY)
    modules("found_jobs", text)
    with pytest.raises(DefinitionError, match="declared twice"):
        modules("found_schedules", "from found_jobs import bill\n" + SCHEDULE.format(rule=HOURLY))


def test_module_that_is_executed_once_more_declares_its_schedules_again(
    modules: Callable[[str, str], ModuleType],
) -> None:
    """With what its text says now, be it another rule: alone, or together with the module of its job type."""
    alone = "from found_jobs import bill\n" + SCHEDULE
    modules("found_jobs", JOBS.format(options=""))
    for rule in (HOURLY, HOURLY, "30 * * * *"):
        modules("found_schedules", alone.format(rule=rule))
        assert rule_of("found.bill") == f"cron {rule} (UTC)"
    modules("found_jobs", JOBS.format(options=""))
    modules("found_schedules", alone.format(rule=HOURLY))
    assert rule_of("found.bill") == f"cron {HOURLY} (UTC)"


def test_module_that_is_imported_anew_declares_its_schedules_again(
    modules: Callable[[str, str], ModuleType],
) -> None:
    """The first import broke off, or a test took the module out: the decorator's schedule and others are found again."""
    text = JOBS.format(options=", schedule='0 6 * * *'") + SCHEDULE.format(rule=HOURLY).replace(
        "tick: {}", "tick: {}, name='every hour'"
    )
    for _ in range(2):
        modules("found_jobs", text)
        del sys.modules["found_jobs"]
    assert (rule_of("found.bill"), rule_of("every hour")) == ("cron 0 6 * * * (UTC)", f"cron {HOURLY} (UTC)")


def test_job_type_that_is_made_anew_brings_its_schedule() -> None:
    """As tests do that declare both in a function; another rule for the same name is a slip all the same."""

    def declare(rule: str) -> None:
        def made() -> None:
            """Do nothing."""

        job(type="tests.made", schedule=rule)(made)

    declare(HOURLY)
    declare(HOURLY)
    with pytest.raises(DefinitionError, match="declared twice"):
        declare("30 * * * *")


def rule_of(name: str) -> str:
    """Return the rule of a schedule that is declared."""
    found = schedules.find_schedule(name)
    assert found is not None
    return found.text


def test_grace_that_no_worker_could_keep_is_refused() -> None:
    """A worker may look seconds after the tick: with less than that, skip would run nothing and nobody would know."""
    handler = job(type="tests.bill")(bill)
    with pytest.raises(DefinitionError, match="at least 10 s"):
        schedule(handler, HOURLY, missed="skip", grace=LEAST_GRACE - timedelta(microseconds=1))
    schedule(handler, HOURLY, missed="skip", grace=LEAST_GRACE)
    assert timedelta(seconds=2 * LOOK_EVERY) <= LEAST_GRACE < GRACE


def test_rule_that_no_row_could_keep_is_refused() -> None:
    """When it is declared, and on each database alike."""
    minutes = ",".join(map(str, range(60)))
    with pytest.raises(DefinitionError, match="300"):
        job(type="tests.bill", schedule=Cron(f"{minutes} {','.join(map(str, range(24)))} {minutes} * *"))(bill)
