"""``trainguard cost``."""
