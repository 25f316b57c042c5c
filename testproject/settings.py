"""Settings of the test project; every value that differs between machines comes from the environment."""

from __future__ import annotations

import importlib.util
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import django
import environ

from testproject.databases import database_from_url

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env(
    DEBUG=(bool, False),
    SECRET_KEY=(str, "for-tests-and-the-demo-only-never-for-a-site-on-the-internet"),
    ALLOWED_HOSTS=(list, ["localhost", "127.0.0.1", "[::1]", "testserver"]),
    DATABASE_URL=(str, f"sqlite:///{BASE_DIR / 'demo.sqlite3'}"),
    EMAIL_BACKEND=(str, "django.core.mail.backends.console.EmailBackend"),
    EMAIL_FILE_PATH=(str, ""),
    LOG_LEVEL=(str, "WARNING"),
    JOBS_IMPORTS=(list, []),
    JOBS_EMAIL_BACKEND=(str, "django.core.mail.backends.console.EmailBackend"),
)

DEBUG = env("DEBUG")
SECRET_KEY = env("SECRET_KEY")
ALLOWED_HOSTS = env("ALLOWED_HOSTS")
ROOT_URLCONF = "testproject.urls"
WSGI_APPLICATION = "testproject.wsgi.application"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_prometheus",
    "django_jobs",
    "testproject.shop",
    "testproject.payments",
]

MIDDLEWARE = [
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_prometheus.middleware.PrometheusAfterMiddleware",
]

# Django has tasks from 6.0 on; on 5.2 the backport django-tasks brings them, where it is installed.
if django.VERSION >= (6, 0) or importlib.util.find_spec("django_tasks"):
    TASKS = {"default": {"BACKEND": "django_jobs.backends.tasks.DurableBackend", "QUEUES": []}}
    if django.VERSION < (6, 0):
        INSTALLED_APPS += ["django_tasks"]

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES: dict[str, dict[str, Any]] = {"default": database_from_url(env("DATABASE_URL"))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# A migration run must not open connections only to count migrations.
PROMETHEUS_EXPORT_MIGRATIONS = False

USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = True
LANGUAGE_CODE = "en-us"
STATIC_URL = "static/"

# Django's own test set-up replaces this by its in-memory backend.
EMAIL_BACKEND = env("EMAIL_BACKEND")
if env("EMAIL_FILE_PATH"):
    EMAIL_FILE_PATH = env("EMAIL_FILE_PATH")
DEFAULT_FROM_EMAIL = "shop@example.com"

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "loggers": {"django_jobs": {"handlers": ["console"], "level": env("LOG_LEVEL")}},
}

JOBS_TIMES = (
    "HEARTBEAT", "SILENT_AFTER", "EXPIRED_PATIENCE", "REAPER_TICK", "BLIND_AFTER", "STUCK_AFTER", "GRACE", "POLL",
    "MAX_CALL", "DELIVERY_TIMEOUT",
)  # fmt: skip

DJANGO_JOBS: dict[str, Any] = {
    "IMPORTS": env("JOBS_IMPORTS"),
    # JOBS_HEARTBEAT=1 and the like, in seconds: tests of the worker do not wait for the real ones.
    **{name: timedelta(seconds=env.float(f"JOBS_{name}")) for name in JOBS_TIMES if f"JOBS_{name}" in os.environ},
    "CONTEXT": env.list("JOBS_CONTEXT", default=[]),
    "MIDDLEWARE": env.list("JOBS_MIDDLEWARE", default=[]),
    "NOTIFY": env.bool("JOBS_NOTIFY", default=True),
    "LISTEN_DSN": env("JOBS_LISTEN_DSN", default=""),
    "TRANSACTION_POOLER": env.bool("JOBS_TRANSACTION_POOLER", default=False),
    "QUEUES": env.json("JOBS_QUEUES", default={}),
    "RESOURCES": env.json("JOBS_RESOURCES", default={}),
    "DESTINATIONS": env.json("JOBS_DESTINATIONS", default={}),
    "EMAIL_BACKEND": env("JOBS_EMAIL_BACKEND"),
    "OWNERS": {
        "billing": {"email": ["billing@example.com"]},
        "shop": {"email": ["shop@example.com"]},
    },
}
