"""What pruning took away, so that what is left can still be verified."""

from __future__ import annotations

from django.db import models

from django_jobs.domain.ids import uuid7
from django_jobs.models.fields import InstantField


class PrunedStretch(models.Model):
    """One batch of jobs that was pruned or redacted, in the transaction that did it.

    Ids rise with time, so ``first_job_id`` to ``last_job_id`` is a stretch of it; ``rows`` of ``kind`` were taken.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    kind = models.CharField(max_length=16)  # "content": payloads and texts became empty; "jobs": rows were deleted
    first_job_id = models.UUIDField()
    last_job_id = models.UUIDField()
    rows = models.PositiveIntegerField()
    finished_before = InstantField()
    created_at = InstantField()

    class Meta:
        """Few rows; read whole."""

        verbose_name = "pruned stretch"
        verbose_name_plural = "pruned stretches"

    def __str__(self) -> str:
        return f"{self.rows} {self.kind} of {self.first_job_id} to {self.last_job_id}"
