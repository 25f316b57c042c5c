"""A site as Django's deployment check wants it."""

from testproject.settings import *  # noqa: F403

DEBUG = False
SECRET_KEY = "k3Yx-" * 12
SECURE_HSTS_SECONDS = 31_536_000
SECURE_HSTS_INCLUDE_SUBDOMAINS = True
SECURE_HSTS_PRELOAD = True
SECURE_SSL_REDIRECT = True
SESSION_COOKIE_SECURE = True
CSRF_COOKIE_SECURE = True
