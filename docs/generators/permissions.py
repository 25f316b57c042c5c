"""The table of permissions, from the models and the groups of ``manage.py jobs groups``."""

from __future__ import annotations

from django.apps import apps
from django.contrib.auth import get_permission_codename

from django_jobs.operate.roles import LEAD, OPERATOR, VIEWER, roles
from docs.generators import markdown


def permission_table() -> str:
    """Return each permission, what it allows, and who has it."""
    groups = roles()
    rows = []
    for model in apps.get_app_config("django_jobs").get_models():
        options = model._meta  # noqa: SLF001  Django's public door
        looking = get_permission_codename("view", options)
        said = [(looking, f"Can look at each {options.verbose_name}"), *options.permissions]
        rows += [(codename, str(text), *(_has(codename in groups[name]) for name in groups)) for codename, text in said]
    rows.sort(key=lambda row: (row[0].startswith("view_") and row[0] != "view_job_payload", row[0]))
    head = ["Codename", "Says", *(name.removeprefix("Jobs: ").capitalize() for name in (VIEWER, OPERATOR, LEAD))]
    return markdown.table(head, [(markdown.code(row[0]), *row[1:]) for row in rows])


def _has(it: bool) -> str:
    return "yes" if it else ""
