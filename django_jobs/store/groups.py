"""Groups of users with permissions of this app; nothing else outside of its own tables is ever written."""

from __future__ import annotations

from collections.abc import Collection

from django_jobs.store.brief import briefly


def grant(group: str, codenames: Collection[str], *, using: str) -> list[str]:
    """Make the group if it is missing, and give it what it lacks of these permissions; takes nothing away.

    Returns:
        The codenames that it was given now, sorted.

    Raises:
        LookupError: A permission does not exist yet: migrations make them.
    """
    # A site without django.contrib.auth has no groups, and must be able to import the store.
    from django.contrib.auth.models import Group, Permission

    with briefly(using):
        permissions = Permission.objects.using(using).filter(content_type__app_label="django_jobs")
        known = dict(permissions.filter(codename__in=codenames).values_list("codename", "pk"))
        missing = sorted(set(codenames) - set(known))
        if missing:
            msg = f"There is no permission {missing[0]!r} yet; run 'manage.py migrate' first."
            raise LookupError(msg)
        row, _ = Group.objects.using(using).get_or_create(name=group)
        lacking = sorted(set(codenames) - set(permissions.filter(group=row).values_list("codename", flat=True)))
        row.permissions.add(*(known[name] for name in lacking))
    return lacking
