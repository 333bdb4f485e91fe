"""Decisions: pure functions of nouns and a given `now`."""
