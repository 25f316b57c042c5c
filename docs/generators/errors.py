"""The list of errors, and the table of what each error says about trying again."""

# ruff: noqa: SLF001  the tables show what the package keeps to itself

from __future__ import annotations

import inspect

from django_jobs import exceptions
from django_jobs.domain import downstream, errors
from django_jobs.domain.states import DeadReason, ErrorClass
from docs.generators import markdown


def error_list() -> str:
    """Return every error of the package with its base and its docstring, in the order of the module."""
    found = [
        kind
        for _, kind in inspect.getmembers(exceptions, inspect.isclass)
        if issubclass(kind, exceptions.JobsError) and kind.__module__ == exceptions.__name__
    ]
    found.sort(key=lambda kind: inspect.getsourcelines(kind)[1])
    rows = ((f"`{kind.__name__}`", _bases(kind), markdown.first_paragraph(kind.__doc__)) for kind in found)
    return markdown.table(("Error", "Is a", "Meaning"), rows)


def _bases(kind: type) -> str:
    return ", ".join(f"`{base.__name__}`" for base in kind.__bases__)


def class_table() -> str:
    """Return what is permanent and what is transient unless a policy says otherwise; everything else is unknown."""
    return markdown.table(("Class", "Errors"), ((f"{kind}", "; ".join(_members(kind))) for kind in _CLASSES))


def proof_table() -> str:
    """Return what each HTTP status proves about the request that it answers."""
    rows = (
        ("applied: a receipt, if it can be read and names what was made", downstream.APPLIED_STATUS),
        ("not applied, and asking again cannot help", downstream.REFUSED_STATUS),
        ("not applied, and later may be better (`refused_before`)", downstream.REFUSED_FOR_NOW_STATUS),
    )
    listed = [(", ".join(map(str, sorted(statuses))), meaning) for meaning, statuses in rows]
    return markdown.table(("Status", "What it proves"), [*listed, ("any other", "nothing: the outcome is unknown")])


_CLASSES = (ErrorClass.PERMANENT, ErrorClass.TRANSIENT)


def _members(kind: ErrorClass) -> list[str]:
    own = [
        f"`{error.__name__}`{'' if reason is DeadReason.PERMANENT else f' (dead letter `{reason}`)'}"
        for error, (error_class, reason) in errors._OWN.items()
        if error_class is kind
    ]
    named = [
        f"`{name.removeprefix('builtins.')}`" for name, error_class in errors._BY_NAME.items() if error_class is kind
    ]
    status = downstream.PERMANENT_STATUS if kind is ErrorClass.PERMANENT else downstream.TRANSIENT_STATUS
    answers = "HTTP status " + ", ".join(map(str, sorted(status)))
    smtp = (
        "SMTP reply 5xx" if kind is ErrorClass.PERMANENT else "SMTP reply 4xx, and 5xx with an enhanced code of class 4"
    )
    return [*own, *named, answers + (" and 5xx" if kind is ErrorClass.TRANSIENT else ""), smtp]
