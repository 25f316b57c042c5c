"""The pages about propagators and middleware: their code runs as it stands, and their settings name it."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

import pytest
from django.conf import settings as configured
from django.test import RequestFactory, override_settings
from django.utils import translation

import django_jobs
from django_jobs import job
from django_jobs.define.registry import unregister
from django_jobs.middleware import Attempting, Enqueueing
from django_jobs.models import Attempt, JobPayload
from django_jobs.testing import JobsClock, JobsKit
from docs import generate
from tests.docs.blocks import FENCE, Task, blocks_of

HOW_TO = generate.DOCS / "how-to"


@contextmanager
def followed(name: str) -> Iterator[dict[str, Any]]:
    """Write what a page shows: its modules, and the settings with which a reader would run them."""
    made: dict[str, Any] = {}
    listed = [block for block in blocks_of(HOW_TO / name) if block.task is Task.WRITE]
    with ExitStack() as stack:
        stack.callback(lambda: [sys.modules.pop(path) for path in made if path in sys.modules])
        for block in listed:
            path = block.path.removesuffix(".py").replace("/", ".")
            module = ModuleType(path)
            if path != "settings":
                sys.modules.setdefault("shop", ModuleType("shop")).__path__ = []
                sys.modules[path] = made[path] = module
                setattr(sys.modules["shop"], path.rpartition(".")[2], module)
                module.__name__ = "testproject.shop.jobs" if path == "shop.jobs" else path
            exec(compile(block.body, block.place, "exec"), vars(module))
            made.setdefault(path, module)
        stack.callback(sys.modules.pop, "shop", None)
        shown = made["settings"].DJANGO_JOBS
        stack.enter_context(override_settings(DJANGO_JOBS={**configured.DJANGO_JOBS, **shown}))
        yield made


@pytest.fixture
def kit(transactional_db: None) -> Iterator[JobsKit]:
    """The kit, in a test whose transactions commit."""
    with JobsClock() as clock, JobsKit(clock=clock) as made:
        yield made


@override_settings(ALLOWED_HOSTS=["acme.example.com"])
def test_the_context_of_a_request_is_active_in_the_handler(kit: JobsKit) -> None:
    """A view behind the page's middleware enqueues; the handler, and nobody after it, sees tenant, user and language."""
    with followed("carry-context.md") as page:
        export, current = page["shop.jobs"].export, page["shop.current"]
        request = RequestFactory().get("/", headers={"host": "acme.example.com", "x-request-id": "r-1"})
        request.user = type("User", (), {"pk": 7})()
        with translation.override("de"):
            current.current(lambda _: export.enqueue(day="2026-03-01"))(request)
        for variable in (current.tenant, current.user_id, current.request_id):
            variable.set(None)
        kit.run_until_idle()

        payload = JobPayload.objects.get()
        assert json.loads(payload.result or "") == "2026-03-01 for acme, asked for by 7"
        expected = {"language": "de", "time_zone": "UTC", "tenant": "acme", "user": 7, "request_id": "r-1"}
        assert json.loads(payload.context or "") == expected
        assert current.tenant.get() is None
    unregister(export.definition.job_type)


def test_middleware_measures_refuses_and_translates(kit: JobsKit, caplog: pytest.LogCaptureFixture) -> None:
    """What the page's classes say that they do happens."""

    @job(type="tests.page_about_middleware")
    def fails() -> None:
        raise ConnectionRefusedError

    with followed("add-middleware.md") as page, caplog.at_level(logging.INFO, logger="shop.jobs"):
        made = fails.enqueue()
        kit.run_one()
        attempt = Attempt.objects.get()
        page["shop.around"].ReadOnly.is_on = True
        with pytest.raises(RuntimeError, match="read-only"):
            fails.enqueue()

    told = [record.getMessage() for record in caplog.records if record.name == "shop.jobs"]
    assert told[0] == f"tests.page_about_middleware created as {made.id}"
    assert re.fullmatch(r"tests.page_about_middleware took 0\.\d{3} s", told[1])
    assert (attempt.error_type, attempt.message) == (
        "django_jobs.exceptions.TransientError",
        "the cache is being replaced",
    )


def test_the_page_names_every_field() -> None:
    """What a middleware may look at stands on the page, and nothing that is not there."""
    page = FENCE.sub("", (HOW_TO / "add-middleware.md").read_text())
    named = set(re.findall(r"`(\w+)`", page))

    for kind in (Enqueueing, Attempting):
        assert {name for name in dir(kind) if not name.startswith("_")} <= named, kind
    assert {"Middleware", "Propagator", "Attempting", "Enqueueing"} <= set(django_jobs.__all__)
