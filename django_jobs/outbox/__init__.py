"""Events: published in the transaction in which they happen, delivered at least once, taken once.

This room emits, dispatches and receives. It is entered from ``worker`` and from user code; it writes through ``store``.
"""
