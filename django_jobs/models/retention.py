"""What pruning took away, so that what is left can still be verified."""

from __future__ import annotations

from django.db import models

from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import Pruning
from django_jobs.models.fields import InstantField


class PrunedStretch(models.Model):
    """One batch that was pruned, in the transaction that did it.

    Ids rise with time, so ``first_job_id`` to ``last_job_id`` is a stretch of it; ``rows`` of ``kind`` were taken: the
    content of so many jobs, so many jobs with all of their rows, or so many expired keys of jobs without content. For
    events, messages and quarantine the ids are those of the rows themselves.
    Nothing else in the stretch was touched. ``created_at`` equals ``content_removed_at`` of the jobs it emptied.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    kind = models.CharField(max_length=16, choices=[(kind.value, kind.value) for kind in Pruning])
    first_job_id = models.UUIDField()
    last_job_id = models.UUIDField()
    rows = models.PositiveIntegerField()
    finished_before = InstantField()
    created_at = InstantField()

    class Meta:
        """One row per batch; a job that is missing is looked for by its id."""

        verbose_name = "pruned stretch"
        verbose_name_plural = "pruned stretches"
        default_permissions = ("view",)
        indexes = [models.Index(fields=["kind", "last_job_id"], name="django_jobs_pruned_where")]

    def __str__(self) -> str:
        return f"{self.rows} {self.kind} of {self.first_job_id} to {self.last_job_id}"


class PrunedOrder(models.Model):
    """Up to which number the events of an ordering key were pruned: what is left begins with the next one.

    It is not a column of the counter, for which producers wait.
    """

    ordering_key = models.CharField(max_length=255, primary_key=True)
    last_seq = models.BigIntegerField()

    class Meta:
        """Written by pruning alone, read by primary key."""

        verbose_name = "pruned order"
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.ordering_key} {self.last_seq}"
