"""Fixtures of other rooms that these tests use."""

from __future__ import annotations

from tests.integration.admin.conftest import root
from tests.integration.worker.conftest import declare

__all__ = ["declare", "root"]
