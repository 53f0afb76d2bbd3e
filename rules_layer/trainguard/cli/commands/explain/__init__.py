"""``trainguard explain``."""
