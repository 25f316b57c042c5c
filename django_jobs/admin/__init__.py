"""Jobs, dead letters, side effects, events and the audit in Django's admin: one file per page.

This room is loaded by the admin's discovery and calls ``operate``. Its pages read; what changes something is a decision
with a page of its own. A site with an ``AdminSite`` of its own calls :func:`register` with it.
"""

from __future__ import annotations

from django.contrib import admin

from django_jobs.admin.pages import register

__all__ = ["register"]

register(admin.site)
