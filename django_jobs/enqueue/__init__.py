"""Recording a job in the caller's transaction.

This room turns arguments into canonical bytes, decides about the idempotency key and hands over to ``store``; it is
entered from ``define`` with frozen options, never with a definition.
"""
