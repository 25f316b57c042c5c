"""The pages that tell how to move here: their blocks, a shop for them to work in, and stand-ins for what is left behind."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

from django_jobs.backends.task_declared import _declared
from django_jobs.define import registry, schedules
from django_jobs.effects import adapter
from docs import generate

HOW_TO = generate.DOCS / "how-to"
NAMES = ["celery", "django-q2", "procrastinate", "rq", "django-tasks-db"]
BLOCK = re.compile(r"^ *```\{code-block\} python\n(?P<body>.*?)^ *```$", re.DOTALL | re.MULTILINE)
CAPTION = re.compile(r"^:caption: (?P<text>.*)$", re.MULTILINE)
CLASS = re.compile(r"^:class: (?P<name>.*)$", re.MULTILINE)
HAS_TASKS = find_spec("django.tasks") is not None
TOLD = "testproject.shop.jobs"  # an installed app, from which job types get their names


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One block: what it is for, the file of the reader that it goes to, and its code."""

    kind: str
    module: str
    code: str


def text_of(name: str) -> str:
    """Return the page about a system."""
    return (HOW_TO / f"move-from-{name}.md").read_text()


def listings(name: str) -> list[Listing]:
    """Return the blocks of a page, in order."""
    found = []
    for block in BLOCK.finditer(text_of(name)):
        body = textwrap.dedent(block["body"])
        caption, kind = CAPTION.search(body), CLASS.search(body)
        if caption is None or kind is None:
            raise ValueError(f"{name}: a block without caption and class:\n{body}")
        module = "shop.tasks" if "shop/tasks.py" in caption["text"] else "shop.jobs"
        found.append(
            Listing(kind=kind["name"], module=module, code=CLASS.sub("", CAPTION.sub("", body)).strip() + "\n")
        )
    return found


@dataclass(slots=True)
class Shop:
    """What the reader has: orders, a bank, mails, a stock; ``done`` is what happened to them, in order."""

    done: list[tuple[Any, ...]] = field(default_factory=list)
    paid: dict[int, str] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)
    offline: int = 0

    def order(self, pk: int) -> Any:
        """Return an order as a model would be."""
        return SimpleNamespace(
            pk=pk,
            cents=1200,
            item_ids=[5],
            is_paid=pk in self.paid,
            mark_paid=lambda ref: self.paid.__setitem__(pk, ref),
            save=lambda: None,
        )

    def charge(self, cents: int, *, idempotency_key: str, timeout: float) -> dict[str, str]:
        """Charge once per key, unless the bank is away."""
        assert timeout > 0
        if idempotency_key not in self.requests:
            if self.offline:
                self.offline -= 1
                raise ConnectionError("the bank is away")
            self.note("charge")(cents)
            self.requests[idempotency_key] = f"ch_{len(self.done)}"
        return {"id": self.requests[idempotency_key]}

    def note(self, what: str, answer: Any = None) -> Callable[..., Any]:
        """Return a function that notes its call."""

        def noted(*arguments: Any) -> Any:
            self.done.append((what, *arguments))
            return answer

        return noted

    def modules(self) -> dict[str, dict[str, Any]]:
        """Return the reader's modules."""
        return {
            "shop": {"__path__": []},
            "shop.models": {"Order": SimpleNamespace(objects=SimpleNamespace(get=lambda pk: self.order(pk)))},
            "shop.bank": {"charge": self.charge},
            "shop.mail": {name: self.note(name) for name in ("remind", "receipt", "report")},
            "shop.stock": {
                **{name: self.note(name) for name in ("load", "report", "ship", "count")},
                "reserve": self.note("reserve", "shelf 3"),
            },
        }


def with_context(given: Any) -> Callable[..., Any]:
    """Return a decorator of another system, which hands a function the context that it asks for."""

    def decorator(function: Any = None, **options: Any) -> Any:
        if function is None:
            return lambda func: decorator(func, **options)
        if options.get("bind") or options.get("pass_context"):
            return lambda *args, **kwargs: function(given, *args, **kwargs)
        return function

    return decorator


def left_behind() -> dict[str, dict[str, Any]]:
    """Return as much of the other systems as bridges need: decorators, and the id of the message that is being run."""
    app = SimpleNamespace(task=with_context(SimpleNamespace(job=SimpleNamespace(id=41))), periodic=with_context(None))
    found: dict[str, dict[str, Any]] = {
        "celery": {"shared_task": with_context(SimpleNamespace(request=SimpleNamespace(id="m-1")))},
        "procrastinate": {"__path__": [], "RetryStrategy": SimpleNamespace},
        "procrastinate.contrib": {"__path__": []},
        "procrastinate.contrib.django": {"app": app},
    }
    if not HAS_TASKS and find_spec("django_tasks"):  # Django 5.2
        found["django.tasks"] = {"task": import_module("django_tasks").task}
    return found


@contextmanager
def moved(name: str, shop: Shop) -> Iterator[tuple[ModuleType, ModuleType]]:
    """Follow the page about a system; yields the modules ``shop.jobs`` and ``shop.tasks`` that it makes."""
    kept = [(known, dict(known)) for known in (registry._jobs, schedules._schedules, adapter._declared, _declared)]
    before = dict(sys.modules)
    for known, _ in kept:
        known.clear()  # type: ignore[attr-defined]
    try:
        for path, content in {**shop.modules(), **left_behind(), "shop.jobs": {}, "shop.tasks": {}}.items():
            sys.modules[path] = module = ModuleType(path)
            module.__spec__ = ModuleSpec(path, None)
            vars(module).update(content)
            parent, _, child = path.rpartition(".")
            if parent.partition(".")[0] in {"shop", "procrastinate"}:
                setattr(sys.modules[parent], child, module)
        sys.modules["shop.jobs"].__name__ = TOLD
        for listing in listings(name):
            if listing.kind in {"after", "bridge"}:
                exec(compile(listing.code, listing.module, "exec"), vars(sys.modules[listing.module]))
        yield sys.modules["shop.jobs"], sys.modules["shop.tasks"]
    finally:
        for path in set(sys.modules) - set(before):
            if path.partition(".")[0] in {"shop", "celery", "procrastinate"} or path == "django.tasks":
                del sys.modules[path]
        for known, content in kept:
            known.clear()  # type: ignore[attr-defined]
            known.update(content)  # type: ignore[attr-defined]
