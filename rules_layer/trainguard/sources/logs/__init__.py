"""Scalars in the lines that a training prints."""
