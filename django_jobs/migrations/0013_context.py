"""What jobs carry from their enqueue to their handler. A column without a default is added without touching a row."""

from django.db import migrations, models

from django_jobs.schema import OnlineMigration


class Migration(OnlineMigration):
    dependencies = [("django_jobs", "0012_serial")]

    operations = [
        migrations.AddField(
            model_name="jobpayload",
            name="context",
            field=models.TextField(blank=True, null=True),
        ),
    ]
