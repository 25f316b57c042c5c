"""A user whose primary key is a UUID."""

import uuid

from django.contrib.auth.models import AbstractUser
from django.db import models


class Person(AbstractUser):
    """A user whose primary key is no number."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)

    class Meta:
        """In an app that is installed by one settings module only."""

        app_label = "people"
