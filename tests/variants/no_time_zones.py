"""A site with naive datetimes, far from UTC."""

from testproject.settings import *  # noqa: F403

USE_TZ = False
TIME_ZONE = "Pacific/Auckland"
