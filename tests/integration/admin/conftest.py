"""Browsers and addresses for tests of the admin."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from tests.factories_pages import person


@pytest.fixture
def root(client: Client) -> Client:
    """A browser in which a superuser is logged in."""
    client.force_login(person(is_staff=True, is_superuser=True))
    return client


def address(name: str, view: str, *arguments: object) -> str:
    """Return the address of a page."""
    return reverse(f"admin:django_jobs_{name}_{view}", args=arguments)
