"""Metrics, health and log lines: what others see of the jobs.

This room listens to ``telemetry`` and reads the store; it alone knows metrics libraries, and nothing imports it but the
app's configuration.
"""
