"""Commands.

This room parses options and prints; what it does lives in ``worker`` and ``operate``.
"""
