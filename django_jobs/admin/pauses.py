"""What is held back, by whom and why."""

from __future__ import annotations

from django.contrib import admin
from django.utils.safestring import SafeString

from django_jobs.admin.reading import ReadingAdmin
from django_jobs.admin.showing import one_line, two_lines, when
from django_jobs.models import Pause


class PauseAdmin(ReadingAdmin):
    """Queues and job types that are paused; ``jobs pause`` and ``jobs resume`` change them."""

    list_display = ("held_back", "by", "why", "since", "until")

    @admin.display(description="Paused")
    def held_back(self, pause: Pause) -> SafeString:
        """Show what is paused."""
        return two_lines(pause.name, pause.kind)

    @admin.display(description="By")
    def by(self, pause: Pause) -> str:
        """Show who paused it."""
        return one_line(pause.actor)

    @admin.display(description="Why")
    def why(self, pause: Pause) -> str:
        """Show the reason."""
        return one_line(pause.reason, 200)

    @admin.display(description="Since")
    def since(self, pause: Pause) -> str:
        """Show when it was paused."""
        return when(pause.created_at)

    @admin.display(description="Until")
    def until(self, pause: Pause) -> str:
        """Show when the pause ends by itself."""
        return when(pause.paused_until)
