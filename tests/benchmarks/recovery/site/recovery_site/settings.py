"""Django's settings; what differs between systems is handed over as JSON in the environment."""

from __future__ import annotations

import json
import os
from urllib.parse import urlsplit

_url = urlsplit(os.environ["RECOVERY_DATABASE"])

SECRET_KEY = "for-the-benchmark-only"
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _url.path.lstrip("/"),
        "USER": _url.username,
        "PASSWORD": _url.password,
        "HOST": _url.hostname,
        "PORT": _url.port,
    }
}
globals().update(json.loads(os.environ["RECOVERY_SETTINGS"]))
