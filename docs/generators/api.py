"""Tables of the public names, options and context members; the code says what exists, ``meanings`` what it is for."""

# ruff: noqa: SLF001  the tables show what the package keeps to itself

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import django_jobs
from django_jobs.define import decorators
from django_jobs.domain.options import USING
from django_jobs.domain.retry import RetryPolicy
from django_jobs.worker.async_context import AsyncTwins
from django_jobs.worker.context import JobContext
from docs.generators import markdown, meanings


def public_names() -> str:
    """Return what can be imported from the package itself."""
    rows = ((f"`{name}`", meanings.PUBLIC[name]) for name in django_jobs.__all__)
    return _complete(markdown.table(("Name", "What it is"), rows), meanings.PUBLIC, set(django_jobs.__all__))


def job_options() -> str:
    """Return the options of ``@job``."""
    overload = typing_overload(decorators.job)
    rows = [(f"`{name}`", _default(name, overload), meanings.JOB[name]) for name in overload]
    return _complete(markdown.table(("Option", "Default", "Meaning"), rows), meanings.JOB, set(decorators._ALLOWED))


def typing_overload(function: Any) -> Mapping[str, inspect.Parameter]:
    """Return the keyword parameters of a decorator's full form."""
    full = typing.get_overloads(function)[-1]
    return {
        name: parameter
        for name, parameter in inspect.signature(full).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def _default(name: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    if name in meanings.JOB_DEFAULTS:
        return meanings.JOB_DEFAULTS[name]
    return markdown.value(parameters[name].default)


def using_options() -> str:
    """Return the options of ``using()``."""
    rows = ((f"`{name}`", meanings.USING[name]) for name in sorted(USING))
    return _complete(markdown.table(("Option", "Meaning"), rows), meanings.USING, set(USING))


def retry_policy() -> str:
    """Return the fields of ``RetryPolicy``."""
    rows = ((f"`{item.name}`", markdown.value(item.default), meanings.RETRY[item.name]) for item in fields(RetryPolicy))
    names = {item.name for item in fields(RetryPolicy)}
    return _complete(markdown.table(("Field", "Default", "Meaning"), rows), meanings.RETRY, names)


def effect_options() -> str:
    """Return the options of ``@effect``."""
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(django_jobs.effect).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    rows = ((f"`{name}`", _effect_default(parameters[name]), meanings.EFFECT[name]) for name in parameters)
    return _complete(markdown.table(("Option", "Default", "Meaning"), rows), meanings.EFFECT, set(parameters))


def _effect_default(parameter: inspect.Parameter) -> str:
    return "required" if parameter.default is inspect.Parameter.empty else markdown.value(parameter.default)


def context_members() -> str:
    """Return what a handler's context offers, with the first paragraph of each docstring."""
    rows = []
    for name, member in {**vars(JobContext), **vars(AsyncTwins)}.items():
        if name.startswith("_") or name == "open_step":  # what step() and astep() are made of
            continue
        is_property = isinstance(member, property)
        shown = name if is_property else f"{name}({_arguments(member)})"
        rows.append((f"`context.{shown}`", markdown.first_paragraph(inspect.getdoc(member))))
    return markdown.table(("Member", "Meaning"), rows)


def _arguments(method: Any) -> str:
    texts = []
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in texts:
            texts.append("*")
        text = parameter.name if parameter.kind is not inspect.Parameter.VAR_KEYWORD else f"**{parameter.name}"
        texts.append(text if parameter.default is inspect.Parameter.empty else f"{text}={parameter.default!r}")
    return ", ".join(texts).replace("'", '"')


def _complete(text: str, meaning: Mapping[str, str], known: set[str]) -> str:
    """Refuse a page that tells of something which does not exist."""
    extra = set(meaning) - known
    if extra:
        raise LookupError(f"Documented, but not in the code: {sorted(extra)}.")
    return text
