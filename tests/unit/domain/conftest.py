"""Settings of the property tests: no deadline per example, because test machines are shared and slow at times."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("django_jobs", deadline=None)
settings.load_profile("django_jobs")
