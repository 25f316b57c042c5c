"""Lanes, priority bands of what is due, one index for the waiting jobs that are looked for, and what workers can run."""

from django.db import migrations, models

from django_jobs.schema import OnlineMigration, ReplaceIndex


class Migration(OnlineMigration):

    dependencies = [
        ('django_jobs', '0003_control_and_retention'),
    ]

    operations = [
        migrations.AddField(
            model_name='worker',
            name='kinds',
            field=models.TextField(db_default='[]', default='[]'),
        ),
        migrations.AlterField(
            model_name='job',
            name='lane',
            field=models.CharField(blank=True, default='', max_length=250),
        ),
        # The former indexes serve the older code until the new ones are there.
        ReplaceIndex(
            model_name='job',
            index=models.Index(models.F('queue_name'), models.F('lane'), models.Case(models.When(priority__gt=0, then=models.Value(1)), models.When(priority__lt=0, then=models.Value(-1)), default=models.Value(0)), models.F('available_at'), condition=models.Q(('state__in', ['scheduled', 'failed'])), name='django_jobs_job_due'),
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(condition=models.Q(('state__in', ['scheduled', 'queued', 'failed']), models.Q(models.Q(('isolation', ''), _negated=True), ('useful_until__isnull', False), _connector='OR')), fields=['isolation', 'useful_until'], name='django_jobs_job_watched'),
        ),
        migrations.RemoveIndex(
            model_name='job',
            name='django_jobs_job_suspect',
        ),
    ]
