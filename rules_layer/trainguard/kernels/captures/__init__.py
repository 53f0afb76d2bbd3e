"""Captures in the stack: which traces belong together, what is kept of each, and what they say together."""
