"""The admin's first page in a real browser."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Browser

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_admin_opens_without_javascript(signed_in: Browser) -> None:
    """Somebody signs in and sees the entries of the package."""
    text = signed_in.open("/admin/")

    assert "Site administration" in text
    assert "Orders" in text
