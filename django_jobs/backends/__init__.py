"""Django's own doors to the package.

This room holds backends that a project names in its settings; they hand over to job types and ``enqueue``.
"""
