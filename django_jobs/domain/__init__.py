"""The rules, in pure Python.

This room holds states and transitions, identity, leases, error classes, retry, poison and effect rules. It imports no
Django and does no I/O; every other room asks it what may happen, and only ``store`` makes it happen.
"""
