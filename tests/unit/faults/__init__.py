"""Fault points: how they are armed, and where that is refused."""
