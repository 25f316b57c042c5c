"""What pruning writes: when a job's content was removed, how the job of a key ended, and an index of the stretches."""

import django_jobs.models.fields
from django.db import migrations, models

from django_jobs.schema import OnlineMigration


class Migration(OnlineMigration):
    dependencies = [("django_jobs", "0005_effect_promises")]

    operations = [
        migrations.AddField(
            model_name="job",
            name="content_removed_at",
            field=django_jobs.models.fields.InstantColumn(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="idempotencykey",
            name="final_state",
            field=models.CharField(blank=True, max_length=16, null=True),
        ),
        migrations.AddField(
            model_name="idempotencykey",
            name="final_resolution",
            field=models.CharField(blank=True, max_length=12, null=True),
        ),
        migrations.AlterField(
            model_name="prunedstretch",
            name="kind",
            field=models.CharField(
                choices=[("content", "content"), ("jobs", "jobs"), ("keys", "keys")], max_length=16
            ),
        ),
        migrations.AddIndex(
            model_name="prunedstretch",
            index=models.Index(fields=["kind", "last_job_id"], name="django_jobs_pruned_where"),
        ),
    ]
