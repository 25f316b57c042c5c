"""Searches through every order of events, and the wrong rules that they must catch."""
