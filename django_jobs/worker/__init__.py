"""Running jobs: a supervisor, its children, and their threads.

This room is entered from the ``runworker`` command; it claims through ``store``, runs handlers from ``define`` and
hands them a context whose effects live in ``effects``.
"""
