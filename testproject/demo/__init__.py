"""
The demo: orders are placed and charged by real workers while a planned set of faults is made to happen.

`manage.py demo` runs it. Each fault leaves evidence that it really happened; the run fails without it.
"""
