"""The same faults for this worker and for others, and what became of the jobs: ``python -m tests.benchmarks.recovery``.

The harness speaks to every system through its tables and its worker's process alone. What jobs did is told by a witness on a
server of its own, which no fault hits; a system is never asked what it thinks that happened.
"""
