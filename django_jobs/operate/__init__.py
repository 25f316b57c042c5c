"""Looking at jobs and judging them, for people who operate them.

This room reads: it finds and lists jobs, explains one in plain English, says what a replay would do, verifies the rows
against the invariants, and looks for what will bite. It is entered from the commands and the admin.
"""
