"""What stops a demo before its verdict."""

from __future__ import annotations


class DemoError(Exception):
    """The demo cannot go on; the message says what it waited for or what stands in its way, and the mend."""
