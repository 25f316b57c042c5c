"""Signatures, event bodies and address rules, which need no database."""
