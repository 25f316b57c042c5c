"""How many coroutines a worker runs beside its threads; a constant default touches no row."""

from django.db import migrations, models

from django_jobs.schema import OnlineMigration


class Migration(OnlineMigration):
    dependencies = [("django_jobs", "0013_context")]

    operations = [
        migrations.AddField(
            model_name="worker",
            name="coroutines",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
    ]
