"""``trainguard alerts``."""
