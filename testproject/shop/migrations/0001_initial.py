import django.db.models.deletion
from django.db import migrations, models

import django_jobs.clock


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.CharField(max_length=32, unique=True)),
                ("customer", models.CharField(max_length=200)),
                ("amount", models.DecimalField(decimal_places=2, max_digits=10)),
                ("currency", models.CharField(default="EUR", max_length=3)),
                ("card", models.CharField(max_length=32)),
                (
                    "status",
                    models.CharField(
                        choices=[("placed", "Placed"), ("paid", "Paid"), ("declined", "Declined")],
                        default="placed",
                        max_length=10,
                    ),
                ),
                ("provider_ref", models.CharField(blank=True, default="", max_length=255)),
                ("decline_reason", models.CharField(blank=True, default="", max_length=255)),
                ("placed_at", models.DateTimeField(default=django_jobs.clock.now)),
                ("paid_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="JournalEntry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("text", models.CharField(max_length=200)),
                ("created_at", models.DateTimeField(default=django_jobs.clock.now)),
                (
                    "order",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="journal", to="shop.order"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "journal entries",
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="Receipt",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("provider_ref", models.CharField(max_length=255)),
                ("amount", models.DecimalField(decimal_places=2, max_digits=10)),
                ("currency", models.CharField(max_length=3)),
                ("created_at", models.DateTimeField(default=django_jobs.clock.now)),
                (
                    "order",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="receipts", to="shop.order"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
    ]
