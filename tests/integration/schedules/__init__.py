"""Schedules: declared, served, paused, run by hand."""
