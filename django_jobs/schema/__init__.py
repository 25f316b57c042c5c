"""How migrations change tables that are in use.

This room is entered from the files in ``migrations``, while ``manage.py migrate`` runs beside producers and workers; it
hands over to Django's schema editor.
"""

from django_jobs.schema.online import OnlineMigration
from django_jobs.schema.replacing import ReplaceConstraint, ReplaceIndex
from django_jobs.schema.vendor import VendorSQL

__all__ = ["OnlineMigration", "ReplaceConstraint", "ReplaceIndex", "VendorSQL"]
