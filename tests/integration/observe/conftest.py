"""Declaring a handler for one test, as tests of the worker do."""

from __future__ import annotations

from tests.integration.worker.conftest import declare

__all__ = ["declare"]
