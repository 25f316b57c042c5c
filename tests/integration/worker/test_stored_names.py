"""R53: a stored name is looked up among the declared job types and nowhere else: no row can make a program import or call."""

from __future__ import annotations

import builtins
import importlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from django_jobs import clock, store
from django_jobs.define import registry
from django_jobs.exceptions import UnknownJobTypeError
from django_jobs.models import Job
from django_jobs.worker.rescue import take_back
from tests.factories import JobFactory
from tests.integration.worker.conftest import claimer
from tests.scenes import known, request

pytestmark = pytest.mark.django_db(transaction=True)

PLANTED = "planted_by_r53"
NAMES = [
    "os.system",
    "subprocess.Popen",
    "__import__",
    "builtins.eval",
    "../x",
    PLANTED,
    f"{PLANTED}.run",
    "testproject.shop.jobs.charge_order",
    "DurableJob.__call__",
]


def _called(*arguments: object, **options: object) -> None:
    raise AssertionError(f"called with {arguments}")


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A module that could be imported by its name, and a list of everything that is asked for by name meanwhile."""
    (tmp_path / f"{PLANTED}.py").write_text("def run(**arguments):\n    raise SystemExit('run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    asked: list[str] = []
    real_import, real_module = builtins.__import__, importlib.import_module

    def statement(name: str, *rest: Any, **more: Any) -> Any:
        asked.append(name)
        return real_import(name, *rest, **more)

    def function(name: str, *rest: Any) -> Any:
        asked.append(name)
        return real_module(name, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "__import__", statement)
        patch.setattr(importlib, "import_module", function)
        patch.setattr(os, "system", _called)
        patch.setattr(subprocess, "Popen", _called)
        yield asked


@pytest.mark.parametrize("name", NAMES)
def test_r53_stored_name_is_an_unknown_type_and_nothing_else(imported: list[str], name: str) -> None:
    """Neither who claims, nor who judges a lost attempt, nor who explains the job imports or calls what a row names."""
    waiting = JobFactory(job_type=name)
    lost = JobFactory(job_type=name, running=True, lease_expires_at=clock.now() - timedelta(hours=1))
    output = io.StringIO()

    with pytest.raises(UnknownJobTypeError):
        registry.get(name)
    assert claimer().take(1, 0) == []
    assert store.claim(request(5, types=[known("tests.other")]), using="default") == []
    take_back(store.abandoned(using="default"))
    for job in (waiting, lost):
        call_command("jobs", "explain", str(job.pk), stdout=output)
        call_command("jobs", "show", str(job.pk), stdout=output)
    call_command("jobs", "list", stdout=output)

    assert name in output.getvalue()
    assert not Job.objects.filter(state="succeeded").exists()
    assert waiting.attempts.count() == 0
    assert PLANTED not in sys.modules
    assert PLANTED not in imported
    assert name not in imported
