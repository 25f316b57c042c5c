"""``jobs groups``."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import Group, Permission

from django_jobs.operate.roles import LEAD, OPERATOR, VIEWER, roles
from tests.integration.commands.test_jobs_command import jobs

pytestmark = pytest.mark.django_db


def test_groups_are_made_once_and_nothing_is_taken_away() -> None:
    """The first run makes three groups, the second gives nothing; what a site added stays."""
    text, code = jobs("groups")
    assert code == 0
    assert text.startswith(f"{VIEWER}: given ")
    lead = Group.objects.get(name=LEAD)
    more = Permission.objects.get(codename="view_session")
    lead.permissions.add(more)
    lead.permissions.remove(Permission.objects.get(codename="resolve_sideeffect"))

    lines = [json.loads(line) for line in jobs("groups", "--json")[0].splitlines()]

    assert {line["group"]: line["given"] for line in lines} == {VIEWER: [], OPERATOR: [], LEAD: ["resolve_sideeffect"]}
    assert set(lead.permissions.values_list("codename", flat=True)) == roles()[LEAD] | {"view_session"}


def test_roles_hold_every_permission_of_the_app() -> None:
    """A permission that no group has was forgotten; one that does not exist cannot be given."""
    existing = set(Permission.objects.filter(content_type__app_label="django_jobs").values_list("codename", flat=True))

    assert roles()[LEAD] == existing
    assert roles()[VIEWER] < roles()[OPERATOR] < roles()[LEAD]
    assert {name for name in roles()[VIEWER] if not name.startswith("view_")} == set()
    assert "view_job_payload" not in roles()[OPERATOR]
