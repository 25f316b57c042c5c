"""Tests of django_jobs: every database test runs on SQLite and on PostgreSQL in one run."""
