"""The project; ``FIVE_BACKEND`` names the backend, ``FIVE_DATABASE`` the file of its database."""

from __future__ import annotations

import os
from importlib.util import find_spec

from django_jobs import RetryPolicy

STOCK = "django.tasks" if find_spec("django.tasks") else "django_tasks"
BACKENDS = {
    "immediate": {"BACKEND": f"{STOCK}.backends.immediate.ImmediateBackend"},
    "django_tasks_db": {"BACKEND": "django_tasks_db.DatabaseBackend"},
    # One attempt, as the others have it.
    "django_jobs": {
        "BACKEND": "django_jobs.backends.tasks.DurableBackend",
        "OPTIONS": {"DEFAULTS": {"retry": RetryPolicy(unknown_attempts=1)}},
    },
}
CHOSEN = os.environ["FIVE_BACKEND"]
TASKS = {"default": {"QUEUES": ["default", "notes"], **BACKENDS[CHOSEN]}}

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    *(["django_tasks"] if STOCK == "django_tasks" else []),
    *([CHOSEN] if CHOSEN != "immediate" else []),
    "tests.variants.five_tasks",
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["FIVE_DATABASE"],
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "of five tasks"
USE_TZ = True
