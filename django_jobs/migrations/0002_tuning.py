"""Storage parameters for rows that are updated in place, and the namespace of provider keys."""

import uuid
from datetime import UTC, datetime

from django.db import migrations

from django_jobs.schema import OnlineMigration, VendorSQL

# Updated often and found through small indexes: leave room on each page, and clean dead entries before claims meet them.
HOT = ("django_jobs_job", "django_jobs_attempt", "django_jobs_sideeffect", "django_jobs_send", "django_jobs_worker")
SET = (
    "fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, "
    "autovacuum_vacuum_cost_delay = 1"
)
RESET = (
    "fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay"
)


def store_namespace(apps, schema_editor):
    Installation = apps.get_model("django_jobs", "Installation")
    Installation.objects.using(schema_editor.connection.alias).get_or_create(
        id=1, defaults={"namespace": str(uuid.uuid4()), "created_at": datetime.now(UTC)}
    )


class Migration(OnlineMigration):
    dependencies = [("django_jobs", "0001_initial")]

    operations = [
        VendorSQL(
            vendor="postgresql",
            sql=[f"ALTER TABLE {table} SET ({SET})" for table in HOT],
            reverse_sql=[f"ALTER TABLE {table} RESET ({RESET})" for table in HOT],
        ),
        migrations.RunPython(store_namespace, migrations.RunPython.noop),
    ]
