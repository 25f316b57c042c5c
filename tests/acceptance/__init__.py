"""The whole system as a user starts it."""
