"""``trainguard replay``."""
