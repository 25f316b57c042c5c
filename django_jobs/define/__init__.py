"""What a job is: the decorator, the definition behind it, and the registry by stored name.

This room is entered from user code at import time; it hands over to ``enqueue`` with frozen options.
"""
